package streamable

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A refusal is a response that the handler itself gives.
type refusal struct {
	abort   bool // the response has begun and is aborted; all other fields are zero
	status  int
	allow   string      // the allowed methods, with status 405
	header  http.Header // more headers
	again   bool        // the message was not executed, and may be sent again soon
	code    int64       // the code of the JSON-RPC error in the body; 0: the body is plain text
	id      jsonrpc.ID  // the id of the refused request; zero if unknown
	text    string
	owner   string // the node that has the session; "" if that is not known
	unknown bool   // no node has the session; all other fields are zero

	// For the Auditor.
	elsewhere bool // another node serves the request, so nothing is refused
	denied    bool // the sender may not do this
	delivered bool // the link has the message, so its receiver tells how that ends
}

// soon is the value of Retry-After for a message that may be sent again, in seconds.
const soon = "1"

// write writes the response. Unless that is to be aborted, nothing of a response may have been written
// before.
func (f *refusal) write(w http.ResponseWriter) {
	if f.abort {
		panic(http.ErrAbortHandler)
	}
	body, mediaType := []byte(f.text+"\n"), "text/plain; charset=utf-8"
	if f.code != 0 {
		body, mediaType = jsonrpc.AppendError(nil, f.id, &jsonrpc.Error{Code: f.code, Message: f.text}), web.TypeJSON
	}
	header := w.Header()
	maps.Copy(header, f.header)
	if f.allow != "" {
		header.Set("Allow", f.allow)
	}
	if f.again {
		header.Set("Retry-After", soon)
	}
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	// The text may repeat what the client has sent. No browser must take it for a page.
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	w.Write(body) // if this fails, the client has left
}

// invalid refuses a body that is not a message, or not one for this endpoint.
func invalid(id jsonrpc.ID, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, id: id, text: fmt.Sprintf(format, args...)}
}

const unknownSession = "session not found"

// sessionNotFound makes the client begin another session, as MCP demands after 404.
func sessionNotFound(id jsonrpc.ID) *refusal {
	return &refusal{status: http.StatusNotFound, code: jsonrpc.CodeInvalidRequest, id: id, text: unknownSession}
}

// shuttingDown refuses a message because the handler is closing.
func shuttingDown(id jsonrpc.ID) *refusal {
	refused := overloaded(id, "shutting down")
	refused.leave()
	return refused
}

// leave tells the client to send nothing more on this connection, because it is about to be closed,
// and a new connection may reach another server.
func (f *refusal) leave() { f.header = http.Header{"Connection": {"close"}} }

// overloaded refuses a message for the time being.
func overloaded(id jsonrpc.ID, text string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, again: true, code: jsonrpc.CodeOverloaded, id: id, text: "overloaded: " + text}
}

// tooMuchUnread refuses a request because there would be no room for its answer.
func tooMuchUnread(id jsonrpc.ID) *refusal {
	return overloaded(id, "too many answers are not read")
}

// unavailable refuses a message for good. It promises neither that another attempt will help, nor that
// nothing was executed.
func unavailable(id jsonrpc.ID, text string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: jsonrpc.CodeInternalError, id: id, text: text}
}

func cannotFlush(id jsonrpc.ID) *refusal {
	return &refusal{status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, id: id, text: errCannotFlush.Error()}
}

// moving refuses a request for the time being, because its session is not here yet.
func moving(id jsonrpc.ID) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, again: true, code: jsonrpc.CodeOverloaded, id: id, text: "the session is not available at the moment"}
}

// misdirected refuses a request that another node has forwarded, because the session is at the
// owner, or because this node does not take it; then owner is "". It says whether this node, or one
// before it, has checked the request.
func misdirected(owner string, checked bool) *refusal {
	refused := &refusal{status: http.StatusMisdirectedRequest, elsewhere: true, text: "the session is at another node", header: http.Header{}}
	if owner != "" {
		refused.header.Set(headerOwner, owner)
	}
	if checked {
		refused.header.Set(headerChecked, "1")
	}
	return refused
}

// errCannotFlush reports a mistake in the program: middleware hides http.Flusher.
var errCannotFlush = errors.New("streamable: " + web.CannotFlush)
