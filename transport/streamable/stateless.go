package streamable

import (
	"fmt"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// postModern serves a POST of a revision without sessions. What only its
// headers call modern is no message of such a revision, and must not become one
// of a session that all clients share. A notification is accepted and goes
// nowhere: it is about nothing, since the disconnect is what cancels, and one
// client's word must not cancel what another has asked.
func (h *Handler) postModern(w http.ResponseWriter, r *http.Request, p *posted) *refusal {
	switch {
	case p.batch:
		return invalid(jsonrpc.ID{}, "%v", jsonrpc.ErrBatch)
	case p.Kind == jsonrpc.KindResult || p.Kind == jsonrpc.KindError:
		return invalid(jsonrpc.ID{}, "a response is not accepted here")
	}
	if !p.modern() && p.asks {
		return &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, id: p.ID,
			text: "_meta: " + protocol.MetaProtocolVersion + " is missing"}
	}
	if text := mismatch(r.Header, &p.message); text != "" {
		return &refusal{status: http.StatusBadRequest, code: protocol.CodeHeaderMismatch, id: p.requestID(), text: text}
	}
	if !p.asks {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	chosen, refused := h.choose(r, p.ID)
	if refused != nil {
		return refused
	}
	s, refused := h.shared(chosen)
	if refused != nil {
		refused.id = p.ID
		return refused
	}
	defer h.sessions.leave(s)
	_, refused = h.answer(s, w, r, p)
	return refused
}

// shared returns the link of an acceptor's messages without a session, in use by
// the caller. It is made when there is none.
func (h *Handler) shared(a Acceptor) (*serverSession, *refusal) {
	if s := h.sessions.current(a); s != nil {
		return s, nil
	}
	h.making.Lock()
	defer h.making.Unlock()
	if s := h.sessions.current(a); s != nil {
		return s, nil
	}
	s := h.newSession("", a)
	if _, ok := h.sessions.add(s); !ok {
		return nil, shuttingDown(jsonrpc.ID{})
	}
	return s, h.begin(s)
}

// mismatch says in which header a message is mirrored wrongly, or is missing;
// nothing when all are right. The revision of a message that names none itself
// is for others to refuse.
func mismatch(header http.Header, m *message) string {
	if m.modern() {
		if text := differs(header, headerVersion, m.version(), asItIs); text != "" {
			return text
		}
	}
	if isRequest := m.Kind == jsonrpc.KindRequest; isRequest || len(header[headerMethod]) > 0 {
		if text := differs(header, headerMethod, m.Method, asItIs); text != "" {
			return text
		}
	}
	if name := m.name(); name != "" || hasName(m.Method) && len(header[headerName]) > 0 {
		return differs(header, headerName, name, decodeHeader)
	}
	return ""
}

// hasName reports whether the messages of a method have a name to mirror. One
// that lacks it must not be called something by its header.
func hasName(method string) bool {
	return method == protocol.MethodCallTool || method == "prompts/get" || method == "resources/read"
}

// differs says how a header is not the one that mirrors want.
func differs(header http.Header, name, want string, decode func(string) (string, error)) string {
	values := header[name]
	if len(values) == 0 {
		return fmt.Sprintf("%s is missing: the message has %.80q", name, want)
	}
	if len(values) > 1 {
		return fmt.Sprintf("%s is given %d times", name, len(values))
	}
	got, err := decode(values[0])
	if err != nil {
		return fmt.Sprintf("%s is %.80q, which cannot be decoded: the message has %.80q", name, values[0], want)
	}
	if got != want {
		return fmt.Sprintf("%s is %.80q, but the message has %.80q", name, got, want)
	}
	return ""
}

func asItIs(value string) (string, error) { return value, nil }

// status is that of a response that consists of its answer.
func (a *answer) status(route transport.Route) int {
	if !a.session.isStateless() || route.Kind != jsonrpc.KindError {
		return http.StatusOK
	}
	switch route.Code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest,
		protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case jsonrpc.CodeInvalidParams:
		if a.lacksMeta {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}
