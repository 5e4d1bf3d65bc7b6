package streamable

import (
	"context"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// expiring is the optional method of a Caller.
type expiring interface{ Until() time.Time }

// untilExpiry returns a request whose context ends at its caller's Until.
// What stays open must not outlive the credentials with which it was opened.
func untilExpiry(r *http.Request, origin *transport.Origin) (*http.Request, context.CancelFunc) {
	if caller, ok := origin.Principal.(expiring); ok {
		if until := caller.Until(); !until.IsZero() {
			ctx, cancel := context.WithDeadline(r.Context(), until)
			return r.WithContext(ctx), cancel
		}
	}
	return r, func() {}
}

// originOf returns the origin of a request, or how the request is denied.
// A Check that returns nothing is a mistake of the program, and must let nobody in.
func (h *Handler) originOf(r *http.Request) (*transport.Origin, *refusal) {
	switch {
	case h.options.Check != nil:
		caller, denied := h.options.Check(r)
		if denied != nil {
			return nil, refusalOf(denied)
		}
		if caller == nil {
			h.options.logger().Error("bowline: HandlerOptions.Check has returned neither a caller nor a denial", "address", web.AddressOf(r))
			return nil, &refusal{status: http.StatusInternalServerError, text: "the caller is not known"}
		}
		origin := web.OriginOf(r, caller.Identity())
		origin.Principal = caller
		return origin, nil
	case h.options.Identify != nil:
		return web.OriginOf(r, h.options.Identify(r)), nil
	default:
		return web.OriginOf(r, ""), nil
	}
}

// allow checks for each message of a body whether its caller may send it.
// One that is denied denies the whole body: no part of a batch is executed then.
func (h *Handler) allow(b *body) *refusal {
	caller, checked := b.origin.Principal.(Caller)
	if !checked {
		return nil
	}
	for _, op := range b.operations {
		if denied := caller.Allow(op); denied != nil {
			return refusalOf(denied)
		}
	}
	if b.Method == "" { // a batch, or a response
		return nil
	}
	if denied := caller.Allow(Operation{b.Method, b.Params}); denied != nil {
		return refusalOf(denied)
	}
	return nil
}

// foreign returns the response to a request for another identity's session. With Check
// it is the same as for an unknown session, so that nobody learns which sessions exist.
func (h *Handler) foreign(id jsonrpc.ID) *refusal {
	if h.options.Check != nil {
		refused := sessionNotFound(id)
		refused.denied = true
		return refused
	}
	return &refusal{status: http.StatusForbidden, denied: true, text: "the session belongs to another identity"}
}

// refusalOf returns a denial as a refusal.
func refusalOf(d *Denial) *refusal {
	return &refusal{status: d.Status, header: d.Header, text: d.Text, denied: true}
}

// choose returns the acceptor of a request that has no session.
func (h *Handler) choose(r *http.Request, id jsonrpc.ID) (transport.Acceptor, *refusal) {
	if h.options.Choose == nil {
		return h.acceptor, nil
	}
	a, status, text := web.Choose(h.options.Choose, r)
	switch status {
	case 0:
		return a, nil
	case http.StatusNotFound:
		return nil, &refusal{status: status, code: jsonrpc.CodeInvalidRequest, id: id, text: text}
	default:
		return nil, &refusal{status: status, code: jsonrpc.CodeInternalError, id: id, text: text}
	}
}
