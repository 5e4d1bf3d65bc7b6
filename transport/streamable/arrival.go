package streamable

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// An arrival is one HTTP request, from its headers to the end of its response: what it says of itself, what the gate has learned about
// it, and what it holds meanwhile. Only the goroutine of the request uses it.
//
// What it holds, it holds until leave, which is called whatever happens, also if a ResponseWriter panics: the room of its body, the use
// of its link (a link that is in use does not count as idle, so it is not replaced), and a link that ends with the request. The room to
// serve the request is not among them: the exchange has it, because a handler may go on when its client has left.
//
// Arrivals are reused. So nothing may keep one beyond ServeHTTP; what goes on longer keeps the http.Request.
type arrival struct {
	h        *Handler
	w        http.ResponseWriter
	r        *http.Request
	expected expectedBody

	// What the request says of itself.
	kind        kind
	session     string // the session id that it names; "" if it names none
	namesModern bool   // its headers name a revision without sessions
	byNode      bool   // another node has forwarded it, and has proved that it is one

	// What the gate has learned. The fields above a check are set when it is made.
	origin   *transport.Origin // the sender
	body     *body             // nil until it was read and decoded
	link     *serverLink       // in use until leave
	ends     bool              // the link ends with this request
	acceptor transport.Acceptor
	exchange *exchange // in which the request is answered
	end      context.CancelFunc
	over     bool // another node has served the request

	journey
}

// arrive begins to serve a request. The caller calls leave, and then gone.
func (h *Handler) arrive(w http.ResponseWriter, r *http.Request, expected expectedBody) *arrival {
	a, ok := h.arrivals.Get().(*arrival)
	if !ok {
		a = new(arrival)
	}
	a.h, a.w, a.r, a.expected = h, w, r, expected
	a.session, a.namesModern, a.byNode = r.Header.Get(headerSession), namesModern(r.Header), isByNode(r)
	a.kind = kindOf(r.Method)
	return a
}

// gone gives up the arrival of a request that is over, for another request.
// It is cleared, so that the pool keeps no client's body, link or credentials.
func (a *arrival) gone() {
	h := a.h
	*a = arrival{}
	h.arrivals.Put(a)
}

func kindOf(method string) kind {
	switch method {
	case http.MethodPost:
		return post
	case http.MethodGet:
		return get
	case http.MethodDelete:
		return del
	default:
		return otherMethod
	}
}

// id returns the id that a refusal names; zero if there is none.
func (a *arrival) id() jsonrpc.ID {
	if a.body == nil {
		return jsonrpc.ID{}
	}
	return a.body.requestID()
}

func (a *arrival) ctx() context.Context { return a.r.Context() }

// leave gives up what the request holds.
func (a *arrival) leave() {
	if a.end != nil {
		a.end()
		a.end = nil
	}
	if l := a.link; l != nil {
		a.link = nil
		// First leave, then end: the end waits until no request uses the link.
		if a.h.table.leave(l); a.ends {
			l.end(transport.ErrPeerClosed, 0)
		}
	}
	if a.body != nil {
		a.body.release()
	}
}

// wasForwarded reports whether the request was forwarded, or claims to be.
func (a *arrival) wasForwarded() bool { return a.byNode || a.r.Header.Get(headerForwarded) != "" }

// findsOpen refuses what comes after Close, unless another node serves it.
func (a *arrival) findsOpen() *refusal {
	if a.stopped() && !a.leaves() {
		return a.closed()
	}
	return nil
}

func (a *arrival) stopped() bool { return wait.IsClosed(a.h.stopped) }

// establish establishes the sender, and makes sure that the session is here if it can be.
func (a *arrival) establish() *refusal {
	if a.origin == nil { // a sender may prove who it is only once for each request
		r := a.r
		if a.checked {
			r = r.WithContext(context.WithValue(r.Context(), checkedKey{}, checkedKey{}))
		}
		origin, refused := a.h.originOf(r)
		if refused != nil {
			return refused
		}
		a.origin, a.checked = origin, true
	}
	// Only now is a session that is elsewhere restored: the store gives it to its own identity alone.
	if !a.travels || a.h.savings == nil || !a.isAway() {
		return nil
	}
	refused := a.h.restore(a.ctx(), wanted{a.session, a.origin, a})
	if a.unknown = refused != nil && refused.unknown; a.unknown {
		return nil // it is refused when its body was read, as without a store
	}
	return refused
}

// readBody reads and decodes the body, unless the journey has read it already, and sorts the request by it.
func (a *arrival) readBody() (refused *refusal) {
	b := a.received
	if b == nil {
		// Only now that the sender is established.
		b, refused = a.h.bodies.read(a.w, a.r, a.expected, a.origin)
	} else {
		refused = b.decodeFrom(a.ctx(), a.origin)
	}
	if refused == nil {
		a.body = b
		a.sort()
	}
	return refused
}

// sort says of which kind a POST is, as its body tells. The message itself determines its era.
// A request that names a modern revision in its headers alone is one, so that lacksVersion refuses it:
// it must not get into a session.
func (a *arrival) sort() {
	request, other := sessionRequest, sessionOther
	switch {
	case a.body.modern() || a.namesModern:
		request, other = modernRequest, modernOther
	case a.h.options.Stateless:
		request, other = statelessRequest, statelessOther
	case a.body.initializes():
		request = initializing
	}
	if a.kind = other; a.body.isRequest {
		a.kind = request
	}
}

// readBatch takes a batch apart, as far as it must be known whether it has requests, and whether its sender may send all of it.
func (a *arrival) readBatch() *refusal {
	if !a.body.batch {
		return nil
	}
	refused := a.body.inTurn(a.ctx(), a.body.decodeBatch)
	if refused == nil {
		a.sort()
	}
	return refused
}

// findSession makes the request use the session that it names.
// From find on the link is in use, so whoever refuses the request gives it back.
func (a *arrival) findSession() *refusal {
	l := a.h.table.find(a.session)
	switch {
	case l == nil:
		return a.absent()
	case l.key.Identity != a.origin.Identity:
		a.h.table.leave(l)
		return a.h.foreign(a.id())
	}
	if text := a.hasOtherRevision(); text != "" {
		a.h.table.leave(l)
		return invalid(a.id(), "%s", text)
	}
	a.h.table.confirm(l)
	a.link = l
	return nil
}

// absent refuses a request of a session that is not here.
// What it says decides what the client does: after 404 it begins another session, after 503 it comes
// again with this one.
func (a *arrival) absent() *refusal {
	drains, isKept := a.h.table.drains(), a.h.savings != nil
	switch {
	case drains && (isKept || a.h.table.hasJustEnded(a.session)):
		return shuttingDown(a.id()) // with a store, the session may go on at another node
	case isKept && !a.unknown:
		return moving(a.id()) // it was here a moment ago
	}
	refused := sessionNotFound(a.id())
	if drains {
		refused.leave()
	}
	return refused
}

// sendToNode has a request served by the node that it names, if that is another one. If that node is gone, this one serves it.
func (a *arrival) sendToNode() *refusal {
	to := a.named()
	if to == nil {
		return nil
	}
	// The sender was established here, and what proves it may be valid only once.
	checked := true
	a.over, _ = a.h.forwardRead(to, a.w, a.r, a.body, ifGone, &checked)
	if !a.over && a.body.frame == nil { // the node has got it, and does not serve it
		return &refusal{status: http.StatusBadGateway, text: "the node of the request cannot be reached"}
	}
	return nil
}

func (a *arrival) allow() *refusal { return a.h.allow(a.body) }

func (a *arrival) choose() (refused *refusal) {
	a.acceptor, refused = a.h.choose(a.r, a.id())
	return refused
}

// chooseWith returns the server for a session that is restored, which takes longer than the client may stay.
func (a *arrival) chooseWith(ctx context.Context) (transport.Acceptor, *refusal) {
	return a.h.choose(a.r.WithContext(ctx), jsonrpc.ID{})
}

// openLink opens the link of a request that names none, or joins the one that its client shares.
func (a *arrival) openLink() (refused *refusal) {
	h, b, key := a.h, a.body, clientKey{a.acceptor, a.body.from}
	switch a.kind {
	case modernRequest:
		a.link, refused = h.sharedLink(a.ctx(), key, b)
		return refused
	case statelessRequest:
		a.ends = true
		a.link, refused = h.openLink(&serverLink{session: newSessionID(), key: key, http: b.origin.HTTP, size: int32(min(len(b.frame), web.MaxInitialize)), stateless: true}, a.id())
		if refused == nil && !b.initializes() {
			refused = h.begin(a.ctx(), a.link, b, a.statelessVersion())
		}
		return refused
	}
	link := &serverLink{session: h.newSessionID(), key: key, http: b.origin.HTTP, size: int32(len(b.frame))}
	// The store hears of the session only when its server serves it.
	link.saved = h.savings.begin(link.session, b.origin.Identity, b.frame)
	if !h.options.NoListening {
		link.since = time.Now()
	}
	a.ends = true // unless the client gets the result
	a.link, refused = h.openLink(link, b.ID)
	return refused
}

// openExchange opens the stream of the request, as soon as there is room for what it takes.
func (a *arrival) openExchange() (refused *refusal) {
	switch b := a.body; {
	case a.kind == modernRequest && b.Method == protocol.MethodListen:
		a.expire()
	case a.kind == sessionRequest && a.h.options.Router != nil && strings.HasPrefix(b.Method, "tasks/"):
		// The task may run at another node, where the session cannot go.
		b.forwarder = &forwarder{a.h, a.r}
	}
	a.exchange, refused = a.h.open(a.ctx(), a.link, a.w, a.body)
	return refused
}

// expire makes the request end at its caller's Until.
func (a *arrival) expire() { a.r, a.end = untilExpiry(a.r, a.origin) }

// isShort reports whether the request announces a body that a node keeps, so that it can send it again.
func (a *arrival) isShort() bool { return 0 <= a.r.ContentLength && a.r.ContentLength <= web.SmallBody }

// receive reads the body of a request whose sender is not established yet.
// It counts for the address alone, until the sender is established.
func (a *arrival) receive() (*body, *refusal) {
	return a.h.bodies.receive(a.w, a.r, a.expected, web.ClientOf("", web.AddressOf(a.r)))
}
