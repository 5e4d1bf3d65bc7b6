package streamable

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A Caller is the sender of a request, as established by HandlerOptions.Check.
// Handlers read it as transport.Origin.Principal. Implementations must be safe for
// concurrent use.
//
// If it also has the method Until() time.Time, streams end when that time comes: a
// GET, and a POST of subscriptions/listen. They end as if the network had broken: the
// client reconnects, is checked again, and loses no message. Other requests run to
// their end. The zero Time means that streams do not end.
type Caller interface {
	// Identity returns the identity of the caller, such as a user id; see
	// HandlerOptions.Identify.
	Identity() string

	// Allow returns nil to permit an operation, or the response that denies it. The
	// handler calls it for each request and notification. For a batch, it calls Allow
	// for all messages before it delivers the first.
	Allow(op Operation) *Denial
}

// expiring is the optional method of a Caller.
type expiring interface{ Until() time.Time }

// untilExpiry returns a request whose context ends at its caller's Until.
func untilExpiry(r *http.Request, origin *transport.Origin) (*http.Request, context.CancelFunc) {
	if caller, ok := origin.Principal.(expiring); ok {
		if until := caller.Until(); !until.IsZero() {
			ctx, cancel := context.WithDeadline(r.Context(), until)
			return r.WithContext(ctx), cancel
		}
	}
	return r, func() {}
}

// NewCaller returns a Caller with an identity that may do everything. It is all you
// need to check API keys.
func NewCaller(identity string) Caller { return unrestricted(identity) }

type unrestricted string

func (u unrestricted) Identity() string      { return string(u) }
func (unrestricted) Allow(Operation) *Denial { return nil }

// An Operation is the method and the params of a message.
type Operation struct {
	Method string          // of MCP, such as "tools/call"
	Params json.RawMessage // as the client sent them; read-only
}

// Name returns the name of the tool or prompt, the URI of the resource or the id of the
// task that an operation is about; "" for other methods. It reads the params.
func (o Operation) Name() string {
	method, _ := protocol.MethodInfo(o.Method)
	return method.NameOf(o.Params)
}

// A Denial is the response to a request that is not served. Nothing of the request was
// executed.
type Denial struct {
	Status int         // such as 401 or 403
	Header http.Header // such as WWW-Authenticate; it is not changed
	Text   string      // for people
}

func (d *Denial) refusal() *refusal {
	return &refusal{status: d.Status, header: d.Header, text: d.Text, denied: true}
}

// originOf returns the origin of a request, or how the request is denied.
func (h *Handler) originOf(r *http.Request) (*transport.Origin, *refusal) {
	switch {
	case h.options.Check != nil:
		caller, denied := h.options.Check(r)
		if denied != nil {
			return nil, denied.refusal()
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
func (h *Handler) allow(b *body) *refusal {
	caller, checked := b.origin.Principal.(Caller)
	if !checked {
		return nil
	}
	for _, op := range b.operations {
		if denied := caller.Allow(op); denied != nil {
			return denied.refusal()
		}
	}
	if b.Method == "" { // a batch, or a response
		return nil
	}
	if denied := caller.Allow(Operation{b.Method, b.Params}); denied != nil {
		return denied.refusal()
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
