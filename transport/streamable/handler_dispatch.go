package streamable

import (
	"errors"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// How a request passes through the package, and where to look:
//
//	handler_dispatch.go  ServeHTTP: the door, then here or elsewhere, then the gate, then the answer
//	arrival.go           the request: what it says, what was learned, what it holds until it leaves
//	gate.go              every check, in order, with its status and code
//	handler_body.go      the body: room for it, its pace, decoding it in turn
//	handler_route.go     a session that is not here: handler_forward.go, handler_leaving.go, session_restore.go
//	handler_links.go     the link of a request that names none
//	exchange.go          the request on its link: delivering it, and what its response becomes
//	server_response.go   the bytes of the response; server_numbering.go gives its events their ids
//
// Nothing of this is done twice for one request, except that a node may ask several others before it
// serves a request itself.

// ServeHTTP implements http.Handler. It returns when the response is complete. To
// abort a response that it cannot complete, it panics with http.ErrAbortHandler, as
// net/http requires.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = h.proxies.Received(r)
	a := h.arrive(w, r, expectBody(w, r))
	if refused := a.serve(); refused != nil {
		if !refused.elsewhere {
			h.refusals.add(refused.status, refused.denied)
			h.audit(a, refused)
		}
		// Last, because it panics to abort a response; the arrival is not reused then.
		refused.write(w)
	}
	a.gone()
}

// serve has a request served, here or at another node. If it is refused, serve returns how.
func (a *arrival) serve() *refusal {
	if refused := a.passes(door); refused != nil {
		return refused
	}
	switch {
	case a.stopped() || a.isAway():
		return a.route()
	case a.kind == post && a.leaves():
		return a.moveOn()
	default:
		return a.serveHere()
	}
}

// serveHere serves a request on this node.
func (a *arrival) serveHere() *refusal {
	a.kind = kindOf(a.r.Method) // again, if another node was asked meanwhile
	defer a.leave()
	if refused := a.passes(gate); refused != nil || a.over {
		return refused
	}
	switch a.kind {
	case get:
		return a.listen()
	case del:
		a.ends = true // a request that still runs ends by its own deadline
		a.leave()
		a.w.WriteHeader(http.StatusNoContent)
		return nil
	case modernOther, statelessOther: // one client's notification must not cancel another client's request
		a.w.WriteHeader(http.StatusAccepted)
		return nil
	case sessionOther:
		return a.link.deliver(a.ctx(), a.w, a.body)
	default:
		return a.answer()
	}
}

// answer serves a request in its exchange. The session that it begins stays if its client was there for the result.
func (a *arrival) answer() *refusal {
	refused := a.exchange.serve(a.ctx(), a.body)
	if a.kind == initializing && a.exchange.session == established {
		a.ends = false
		a.link.saved.serve(a.link.negotiatedVersion())
	}
	return refused
}

// listen serves the GET stream of a session, or a client that comes back for the response to a request.
func (a *arrival) listen() *refusal {
	a.expire()
	switch id, named, _ := a.lastEvent(); {
	case !named:
		return a.link.listen(a.ctx(), a.w, &a.h.options, nil)
	case id.stream == transport.Main:
		return a.link.listen(a.ctx(), a.w, &a.h.options, &id)
	default:
		return a.link.resume(a.ctx(), a.w, &a.h.options, id)
	}
}

// audit tells the Auditor what is refused: each message of the body, or the HTTP request if
// none could be read.
func (h *Handler) audit(a *arrival, f *refusal) {
	auditor, ok := h.acceptor.(transport.Auditor)
	if !ok || f.abort || f.delivered || web.IsNil(h.acceptor) || !auditor.Audits() {
		return
	}
	refusal := transport.Refusal{Origin: a.origin, Denied: f.denied, Status: f.status, Code: f.code, Err: errors.New(f.text), Since: a.expected.since}
	if refusal.Origin == nil {
		refusal.Origin = web.OriginOf(a.r, "")
	}
	for _, m := range a.body.messages() {
		if refusal.Message = m; m == nil && !f.id.IsZero() {
			refusal.Message = &jsonrpc.Message{ID: f.id}
		}
		auditor.Refused(refusal)
	}
}
