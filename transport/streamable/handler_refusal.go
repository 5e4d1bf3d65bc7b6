package streamable

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A refusal is an HTTP response with a status of its own, and nothing else.
type refusal struct {
	status int
	allow  string     // methods, of 405
	code   int64      // of the JSON-RPC error that says it; 0 for plain text
	id     jsonrpc.ID // of the request that is refused, if it is known
	text   string
}

func (f *refusal) write(w http.ResponseWriter) {
	body, mediaType := []byte(f.text+"\n"), "text/plain; charset=utf-8"
	if f.code != 0 {
		body, mediaType = jsonrpc.AppendError(nil, f.id, &jsonrpc.Error{Code: f.code, Message: f.text}), typeJSON
	}
	header := w.Header()
	if f.allow != "" {
		header.Set("Allow", f.allow)
	}
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	w.Write(body) // who does not take it has left
}

func notAllowed(methods string) *refusal {
	return &refusal{status: http.StatusMethodNotAllowed, allow: methods, text: "method not allowed"}
}

// invalid is a message that is not one, or not one for here.
func invalid(id jsonrpc.ID, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, id: id, text: fmt.Sprintf(format, args...)}
}

func sessionNotFound(id jsonrpc.ID) *refusal {
	return &refusal{status: http.StatusNotFound, code: jsonrpc.CodeInvalidRequest, id: id, text: "session not found"}
}

func shuttingDown(id jsonrpc.ID) *refusal {
	return unavailable(id, "shutting down")
}

func cannotFlush(id jsonrpc.ID) *refusal {
	return &refusal{status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, id: id, text: errCannotFlush.Error()}
}

func unavailable(id jsonrpc.ID, text string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: jsonrpc.CodeInternalError, id: id, text: text}
}
