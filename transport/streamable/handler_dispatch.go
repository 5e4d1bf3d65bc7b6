package streamable

import (
	"context"
	"net/http"
	"reflect"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// ServeHTTP implements http.Handler. It returns when the response is complete. To
// abort a response that it cannot complete, it panics with http.ErrAbortHandler, as
// net/http requires.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = h.proxies.Received(r)
	a := h.arrive(w, r, expectBody(w, r))
	if refused := a.serve(); refused != nil {
		if !refused.elsewhere {
			h.refusals.add(refused.status)
			h.audit(a, refused)
		}
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

// open opens the stream of a request on a link, as soon as there is room for what the request takes.
func (h *Handler) open(ctx context.Context, l *serverLink, w http.ResponseWriter, b *body) (*exchange, *refusal) {
	taken, ok := h.served.take(ctx, b.due(), l.key.Client, len(b.frame)+int(b.Memory), b.Method == protocol.MethodListen)
	switch {
	case !ok && wait.IsClosed(h.stopped):
		return nil, shuttingDown(b.requestID())
	case !ok:
		return nil, overloaded(b.requestID(), "too much is being served")
	}
	s, refused := l.openStream(w, b, taken, &h.options)
	if refused != nil {
		h.served.give(l.key.Client, taken)
		return nil, refused
	}
	return s, nil
}
