package streamable

import (
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// requestID is the id to refuse with: that of a request. A response has one
// too, but it is not the client's.
func (p *posted) requestID() jsonrpc.ID {
	if p.Kind == jsonrpc.KindRequest {
		return p.ID
	}
	return jsonrpc.ID{}
}

func (p *posted) initializes() bool {
	return p.Kind == jsonrpc.KindRequest && p.Method == protocol.MethodInitialize
}

// postLegacy serves a POST of a revision with sessions.
func (h *Handler) postLegacy(w http.ResponseWriter, r *http.Request, p *posted) *refusal {
	named := r.Header.Get(headerSession) != ""
	switch {
	case p.initializes() && named:
		return invalid(p.ID, "initialize begins a session: %s must not be sent", headerSession)
	case p.initializes():
		return h.initialize(w, r, p)
	case !named:
		return invalid(p.requestID(), "%s is missing: initialize first", headerSession)
	}
	s, refused := h.enterSession(r, p.requestID(), p.origin.Identity)
	if refused != nil {
		return refused
	}
	defer h.sessions.leave(s)
	if p.batch {
		if refused := s.checkBatch(p); refused != nil {
			return refused
		}
	}
	if p.asks {
		_, refused := h.answer(s, w, r, p)
		return refused
	}
	return s.deliver(w, r, p)
}

// get serves the stream that a session's client listens to.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) *refusal {
	if r.Header.Get(headerSession) == "" || namesModern(r.Header) {
		return notAllowed("POST")
	}
	if r.ContentLength != 0 { // its end would have to be waited for
		return &refusal{status: http.StatusBadRequest, text: "a GET has no body"}
	}
	s, refused := h.enterSession(r, jsonrpc.ID{}, h.identify(r))
	if refused != nil {
		return refused
	}
	defer h.sessions.leave(s)
	if !accepts(r.Header, typeStream) {
		return &refusal{status: http.StatusNotAcceptable, text: "Accept must include " + typeStream}
	}
	return h.listen(s, w, r)
}

// delete ends a session for its client.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request) *refusal {
	if r.Header.Get(headerSession) == "" || namesModern(r.Header) {
		return notAllowed("POST")
	}
	s, refused := h.enterSession(r, jsonrpc.ID{}, h.identify(r))
	if refused != nil {
		return refused
	}
	h.sessions.leave(s)
	s.end(transport.ErrPeerClosed, 0) // a request left behind ends with its own deadline
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// enterSession finds the session that a request names, and makes the request a
// user of it.
func (h *Handler) enterSession(r *http.Request, id jsonrpc.ID, identity string) (*serverSession, *refusal) {
	s := h.sessions.find(r.Header.Get(headerSession))
	if s == nil {
		return nil, sessionNotFound(id)
	}
	refused := checkLegacyVersion(r.Header, id)
	if s.identity != identity {
		refused = &refusal{status: http.StatusForbidden, text: "the session belongs to somebody else"}
	}
	if refused != nil {
		h.sessions.leave(s)
		return nil, refused
	}
	return s, nil
}

func checkLegacyVersion(header http.Header, id jsonrpc.ID) *refusal {
	if version := header.Get(headerVersion); version != "" && !protocol.IsLegacy(version) {
		return invalid(id, "%s is %.80q: supported with a session are %s", headerVersion, version,
			strings.Join(protocol.LegacyVersions(), ", "))
	}
	return nil
}

// initialize begins a session. One that was not established, or whose client
// has not been told, is ended again.
func (h *Handler) initialize(w http.ResponseWriter, r *http.Request, p *posted) *refusal {
	if refused := checkLegacyVersion(r.Header, p.ID); refused != nil {
		return refused
	}
	chosen, refused := h.choose(r, p.ID)
	if refused != nil {
		return refused
	}
	s := h.newSession(drawSessionID(), chosen)
	s.identity = p.origin.Identity
	evicted, ok := h.sessions.add(s)
	if !ok {
		return unavailable(p.ID, "no more sessions are possible now")
	}
	if evicted != nil {
		evicted.end(transport.ErrSessionExpired, 0)
	}
	if refused := h.begin(s); refused != nil {
		refused.id = p.ID
		return refused
	}
	established := false
	defer func() {
		h.sessions.leave(s)
		if !established {
			s.end(transport.ErrPeerClosed, 0)
		}
	}()
	a, refused := h.answer(s, w, r, p)
	established = a.established && refused == nil && r.Context().Err() == nil
	return refused
}

// checkBatch says whether the session takes a batch, and looks into it.
func (s *serverSession) checkBatch(p *posted) *refusal {
	s.mu.Lock()
	takesBatches := s.batches
	s.mu.Unlock()
	if !takesBatches {
		return invalid(jsonrpc.ID{}, "%v", jsonrpc.ErrBatch)
	}
	return p.decodeBatch()
}
