package streamable

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/signal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// serve serves a request. If the request is refused, serve returns how.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, expected expectedBody) *refusal {
	leaves, stopped := h.leaves(r), signal.IsClosed(h.stopped)
	if stopped && !leaves {
		return h.closed(r)
	}
	if !isByNode(r) { // the node that has forwarded the request has checked it
		if refused := h.options.checkSource(r); refused != nil {
			return refused
		}
	}
	switch {
	case stopped || h.isAway(r):
		return h.route(w, r, expected)
	case leaves && r.Method == http.MethodPost:
		return h.leave(w, r, expected)
	default:
		return h.serveHere(w, r, expected, nil)
	}
}

// serveHere serves a request on this node. T is nil if the session of the request was here when
// the request came, or if it has none.
func (h *Handler) serveHere(w http.ResponseWriter, r *http.Request, expected expectedBody, t *trip) *refusal {
	switch r.Method {
	case http.MethodPost:
		return h.post(w, r, expected, t)
	case http.MethodGet:
		return h.get(w, r, t)
	case http.MethodDelete:
		return h.delete(w, r, t)
	default:
		return notAllowed("GET, POST, DELETE")
	}
}

// post serves a message. The message itself determines its era. If only its headers say
// that it is modern, it must not reach a link that several clients share.
func (h *Handler) post(w http.ResponseWriter, r *http.Request, expected expectedBody, t *trip) *refusal {
	if refused := checkMediaTypes(r.Header); refused != nil {
		return refused
	}
	if r.ContentLength > int64(h.options.MaxBody) {
		return h.room.tooLarge()
	}
	origin, refused := h.arrive(r, t)
	if refused != nil {
		return refused.of(origin, nil)
	}
	b, refused := h.bodyOf(w, r, expected, origin, t)
	if refused != nil {
		return refused.of(origin, nil)
	}
	defer b.release()
	if b.modern() || namesModern(r.Header) {
		return h.postModern(w, r, b).of(origin, b)
	}
	return h.postLegacy(w, r, b, t).of(origin, b)
}

// bodyOf reads and decodes the body of a request, unless the trip has read it already. The
// caller releases it.
func (h *Handler) bodyOf(w http.ResponseWriter, r *http.Request, expected expectedBody, origin *transport.Origin, t *trip) (*body, *refusal) {
	if t == nil || t.body == nil {
		return h.room.read(w, r, expected, origin)
	}
	return t.body, t.body.decodeFrom(r.Context(), origin)
}

// choose returns the acceptor of a request that has no session.
func (h *Handler) choose(r *http.Request, id jsonrpc.ID) (Acceptor, *refusal) {
	if h.options.Choose == nil {
		return h.acceptor, nil
	}
	a := h.options.Choose(r)
	switch {
	case web.IsNil(a):
		return nil, &refusal{status: http.StatusNotFound, code: jsonrpc.CodeInvalidRequest, id: id, text: "there is no such server"}
	case !reflect.ValueOf(a).Comparable():
		return nil, &refusal{status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, id: id,
			text: "the server chosen for this request cannot be compared"}
	}
	return a, nil
}

// postModern serves a message of a revision without sessions. It accepts and drops
// notifications: they belong to no request, and one client's notification must not
// cancel another client's request.
func (h *Handler) postModern(w http.ResponseWriter, r *http.Request, b *body) *refusal {
	switch {
	case b.batch:
		return invalid(jsonrpc.ID{}, "%v", jsonrpc.ErrBatch)
	case b.Kind == jsonrpc.KindResult || b.Kind == jsonrpc.KindError:
		return invalid(jsonrpc.ID{}, "a response is not accepted here")
	case !b.modern() && b.asks:
		return &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, id: b.ID,
			text: "_meta: " + protocol.MetaProtocolVersion + " is missing"}
	}
	if refused := checkMirrors(r.Header, b); refused != nil {
		return refused
	}
	if !b.asks {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	if to := h.named(r, b); to != nil {
		checked := true
		if served, _ := h.forwardRead(to, w, r, b, ifGone, &checked); served {
			return nil
		}
		if b.frame == nil { // the node has got it, and does not serve it
			return &refusal{status: http.StatusBadGateway, text: "the node of the request cannot be reached"}
		}
	}
	if refused := h.allow(b); refused != nil {
		return refused
	}
	a, refused := h.choose(r, b.ID)
	if refused != nil {
		return refused
	}
	l, refused := h.sharedLink(r.Context(), clientKey{a, b.from}, b)
	if refused != nil {
		return refused
	}
	defer h.table.leave(l)
	if b.Method == protocol.MethodListen {
		var end context.CancelFunc
		r, end = untilExpiry(r, b.origin)
		defer end()
	}
	_, refused = h.answer(l, w, r, b)
	return refused
}

// answer serves a request on a new stream, as soon as there is room for what it takes.
func (h *Handler) answer(l *serverLink, w http.ResponseWriter, r *http.Request, b *body) (*requestStream, *refusal) {
	taken, ok := h.served.take(r.Context(), b.due(), l.key.Client, len(b.frame)+int(b.Memory), b.Method == protocol.MethodListen)
	switch {
	case !ok && signal.IsClosed(h.stopped):
		return new(requestStream), shuttingDown(b.requestID())
	case !ok:
		return new(requestStream), overloaded(b.requestID(), "too much is being served")
	}
	s, refused := l.openStream(w, b, taken, &h.options)
	if refused != nil {
		h.served.give(l.key.Client, taken)
		return s, refused
	}
	return s, s.serve(r.Context(), b)
}

// postLegacy serves a message of a revision with sessions.
func (h *Handler) postLegacy(w http.ResponseWriter, r *http.Request, b *body, t *trip) *refusal {
	named := r.Header.Get(headerSession) != ""
	switch {
	case b.initializes() && named:
		return invalid(b.ID, "initialize begins a session: %s must not be sent", headerSession)
	case h.options.Stateless && named:
		return sessionNotFound(b.requestID())
	case b.initializes() && len(b.frame) > web.MaxInitialize:
		text := fmt.Sprintf("initialize is above the limit of %d bytes", web.MaxInitialize)
		return &refusal{status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeInvalidRequest, id: b.ID, text: text}
	case h.options.Stateless:
		return h.postStateless(w, r, b)
	case b.initializes():
		return h.initialize(w, r, b)
	case !named:
		return invalid(b.requestID(), "%s is missing: initialize first", headerSession)
	}
	l, refused := h.findSession(r, b.requestID(), b.origin.Identity, t)
	if refused != nil {
		return refused
	}
	defer h.table.leave(l)
	if b.batch {
		if !l.takesBatches() {
			return invalid(jsonrpc.ID{}, "%v", jsonrpc.ErrBatch)
		}
		if refused := b.inTurn(r.Context(), b.decodeBatch); refused != nil {
			return refused
		}
	}
	if refused := h.allow(b); refused != nil {
		return refused
	}
	if b.asks {
		if h.options.Router != nil && strings.HasPrefix(b.Method, "tasks/") {
			b.forwarder = &forwarder{h, r}
		}
		_, refused := h.answer(l, w, r, b)
		return refused
	}
	return l.deliver(w, r, b)
}

// initialize begins a session. It ends the session immediately if the server refused it,
// or if the response did not reach the client.
func (h *Handler) initialize(w http.ResponseWriter, r *http.Request, b *body) *refusal {
	if refused := checkLegacyVersion(r.Header, b.ID); refused != nil {
		return refused
	}
	if refused := h.allow(b); refused != nil {
		return refused
	}
	a, refused := h.choose(r, b.ID)
	if refused != nil {
		return refused
	}
	link := &serverLink{session: h.newSessionID(), key: clientKey{a, b.from}, http: b.origin.HTTP, size: int32(len(b.frame))}
	link.saved = h.savings.begin(link.session, b.origin.Identity, b.frame)
	if !h.options.NoListening {
		link.left = time.Now()
	}
	l, refused := h.openLink(link, b.ID)
	if refused != nil {
		return refused
	}
	established := false
	defer func() {
		h.table.leave(l)
		if !established {
			l.end(transport.ErrPeerClosed, 0)
		}
	}()
	s, refused := h.answer(l, w, r, b)
	if established = s.established; established {
		l.saved.serve(l.negotiatedVersion())
	}
	return refused
}

// get serves the GET stream of a session.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, t *trip) *refusal {
	if r.Header.Get(headerSession) == "" || namesModern(r.Header) || h.options.Stateless {
		return notAllowed("POST")
	}
	if r.ContentLength != 0 { // net/http would wait for the end of the body
		return &refusal{status: http.StatusBadRequest, text: "a GET has no body"}
	}
	origin, refused := h.arrive(r, t)
	if refused != nil {
		return refused.of(origin, nil)
	}
	return h.getFrom(w, r, origin, t).of(origin, nil)
}

// getFrom serves the GET stream of a session to a sender that is established.
func (h *Handler) getFrom(w http.ResponseWriter, r *http.Request, origin *transport.Origin, t *trip) *refusal {
	l, refused := h.findSession(r, jsonrpc.ID{}, origin.Identity, t)
	if refused != nil {
		return refused
	}
	defer h.table.leave(l)
	r, end := untilExpiry(r, origin)
	defer end()
	if !accepts(r.Header, web.TypeEvents) {
		return &refusal{status: http.StatusNotAcceptable, text: "Accept must include " + web.TypeEvents}
	}
	last := r.Header.Get(headerLastEventID)
	id, ok := parseEventID(last)
	switch {
	case h.options.NoListening && (last == "" || ok && id.stream == transport.Main):
		return notAllowed("POST, DELETE")
	case last == "":
		return l.listen(w, r, &h.options, nil)
	case !ok:
		return &refusal{status: http.StatusBadRequest, text: headerLastEventID + " is no event id of this server"}
	case id.stream == transport.Main:
		return l.listen(w, r, &h.options, &id)
	default:
		return h.resume(l, w, r, id)
	}
}

// delete ends a session when its client asks for it.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, t *trip) *refusal {
	if r.Header.Get(headerSession) == "" || namesModern(r.Header) || h.options.Stateless {
		return notAllowed("POST")
	}
	origin, refused := h.arrive(r, t)
	if refused != nil {
		return refused.of(origin, nil)
	}
	l, refused := h.findSession(r, jsonrpc.ID{}, origin.Identity, t)
	if refused != nil {
		return refused.of(origin, nil)
	}
	h.table.leave(l)
	l.end(transport.ErrPeerClosed, 0) // a request that still runs ends by its own deadline
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// findSession returns the session that a request names. The caller uses it until
// it calls table.leave.
func (h *Handler) findSession(r *http.Request, id jsonrpc.ID, identity string, t *trip) (*serverLink, *refusal) {
	session := r.Header.Get(headerSession)
	l := h.table.find(session)
	if l == nil {
		return nil, h.absent(session, id, t)
	}
	refused := checkLegacyVersion(r.Header, id)
	if l.key.Identity != identity {
		refused = h.foreign(id)
	}
	if refused != nil {
		h.table.leave(l)
		return nil, refused
	}
	h.table.confirm(l)
	return l, nil
}

// absent refuses a request of a session that is not here.
func (h *Handler) absent(session string, id jsonrpc.ID, t *trip) *refusal {
	drains := h.table.drains()
	switch {
	case drains && (h.savings != nil || h.table.hasJustEnded(session)):
		return shuttingDown(id) // with a store, the session may go on at another node
	case h.savings != nil && (t == nil || !t.unknown):
		return moving(id) // it was here a moment ago
	}
	refused := sessionNotFound(id)
	if drains {
		refused.leave()
	}
	return refused
}
