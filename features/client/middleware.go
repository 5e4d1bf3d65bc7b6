package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request is a request or notification as middleware sees it.
type Request struct {
	Method string

	// Params points to the params of the method, for instance
	// *protocol.CallToolParams. They belong to the request: middleware may change
	// them. They are a json.RawMessage for methods that this package does not know,
	// and for everything that Session.Request and Session.Notify send.
	Params any

	Session      *Session
	Incoming     bool // the server sent it; false: this client sends it
	Notification bool // there is no result

	sent  *sent          // for an outgoing request: its last attempt, set when it was sent
	asked *conn.Incoming // for a question that is a request, and for reports of its progress: that request
}

// ID returns the id of the last attempt of a request that this client has sent, after the
// next Handler has returned. It returns 0 for other messages, and if nothing was sent.
func (r *Request) ID() int64 {
	if r.sent == nil {
		return 0
	}
	return r.sent.last.id
}

// Epoch returns the epoch of the last attempt (Status.Epoch), after the next Handler has
// returned. It returns 0 for an incoming message, and if nothing was sent.
func (r *Request) Epoch() uint64 {
	if r.ID() == 0 || r.sent.last.peer == nil {
		return 0
	}
	return r.sent.last.peer.Epoch()
}

// Network returns what is known about the way to the server: that of the last attempt
// once the next Handler has returned, and otherwise the session's present server.
func (r *Request) Network() transport.Network {
	p := r.Session.peer.Load()
	if r.sent != nil && r.sent.last.peer != nil {
		p = r.sent.last.peer
	}
	if p == nil {
		return transport.Network{}
	}
	return p.incarnation.Network()
}

// QuestionID returns the id of a request that the server has sent, or whose progress is
// reported. It is zero for other messages, and for a question that came with the answer to a
// call.
func (r *Request) QuestionID() jsonrpc.ID {
	if r.asked == nil {
		return jsonrpc.ID{}
	}
	return r.asked.ID()
}

// A Handler handles a request or notification on its way through the middleware. The
// result is a pointer to the result of the method, such as *protocol.CallToolResult,
// or a json.RawMessage if Params is one. For a notification it is nil.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// Middleware wraps a Handler. It may change the request, answer it without calling
// next, or change the result. It may call next several times, one after the other, and
// never at the same time, even with copies of the Request. Each call of next returns a
// result of its own. To pass on another request, middleware copies the Request that it
// got: one that it has made itself is refused.
//
// A result that the program keeps may keep its Request in memory, with the params and
// the Session, even after Close.
//
// All calls of a session, and all questions and notifications from its server, pass
// through the same middleware; see Request.Incoming. A call passes through it once,
// however often it is retried or asked for more input. What a session sends on its
// own does not pass through middleware: the handshake, probes, subscriptions/listen,
// and cancellation.
type Middleware func(next Handler) Handler

// On returns middleware for the requests of one method, which the type of the params
// selects. It passes on all other requests unchanged, including those of
// Session.Request, whose params are raw.
func On[P, R any](f func(ctx context.Context, p *P, next func(context.Context, *P) (*R, error)) (*R, error)) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (any, error) {
			params, ok := r.Params.(*P)
			if !ok {
				return next(ctx, r)
			}
			result, err := f(ctx, params, func(ctx context.Context, p *P) (*R, error) {
				changed := *r
				changed.Params = p
				return as[R](next(ctx, &changed))
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}

// as converts a result from middleware.
func as[R any](result any, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	typed, ok := result.(*R)
	if !ok || typed == nil {
		return nil, fmt.Errorf("client: middleware returned %T, not a %T", result, typed)
	}
	return typed, nil
}

// chain wraps the innermost handler in the middleware, the first of which becomes the
// outermost. Without middleware it returns nil, and requests skip the chain.
func chain(all []Middleware) Handler {
	if len(all) == 0 {
		return nil
	}
	handler := Handler(dispatch)
	for i := len(all) - 1; i >= 0; i-- {
		handler = all[i](handler)
	}
	return handler
}

// dispatch is the innermost handler.
func dispatch(ctx context.Context, r *Request) (any, error) {
	raw, isRaw := r.Params.(json.RawMessage)
	switch {
	case r.Incoming && r.Notification:
		r.Session.receive(ctx, r)
		return nil, nil
	case r.Incoming:
		return r.Session.answer(ctx, r)
	case r.Notification:
		return nil, r.Session.notify(ctx, r)
	case isRaw:
		return r.Session.sendRaw(ctx, r.Method, raw)
	}
	if known, ok := r.Session.client.table.requests[r.Method]; ok {
		return known.callInside(ctx, r)
	}
	return nil, fmt.Errorf("client: %s: params are a %T, not a json.RawMessage", r.Method, r.Params)
}

func (m *method[P, R, Q]) countsByName() bool { return m.counts }
