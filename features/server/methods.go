package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Handler serves a request or a notification. The result is a pointer to the
// result of the method, such as *protocol.CallToolResult; it is ignored for a
// notification.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// A Middleware wraps the handling of all messages that a server receives and sends:
// requests and notifications from its clients, and its own questions and
// notifications, for which Request.Outgoing is set. Call next at most once, with the
// same Request or a changed copy. The result of next may be shared with other calls,
// so copy it before you change it.
//
// Next returns an error for a feature that panics, so a middleware needs no recover. It is
// an internal error for the client, and matches *conn.PanicError.
//
// A middleware sees only what reaches the features of the server. It does not see ping,
// progress and cancellation from the client, messages that are malformed, denied, or refused
// because of overload, and those that a handler sends itself in the name of a client
// (streamable.HandlerOptions.Stateless). Options.Audit sees how every request ends, once.
type Middleware func(next Handler) Handler

// On returns a middleware for the one method whose params are a *P and whose result
// is a *R. It passes on all other messages unchanged.
func On[P, R any](f func(ctx context.Context, params *P, next func(context.Context, *P) (*R, error)) (*R, error)) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (any, error) {
			params, ok := r.Params.(*P)
			if !ok || r.Notification {
				return next(ctx, r)
			}
			result, err := f(ctx, params, func(ctx context.Context, params *P) (*R, error) {
				changed := *r
				changed.Params = params
				result, err := next(ctx, &changed)
				if err != nil {
					return nil, err
				}
				typed, ok := result.(*R)
				if !ok {
					return nil, fmt.Errorf("server: %s has a result of type %T, want %T", r.Method, result, typed)
				}
				return typed, nil
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}

// A method is one row of the table of methods. It contains everything that is needed to
// serve one method.
type method struct {
	protocol.Method // name, revisions and capability

	// offered reports whether the server offers the method to the client of a call, in
	// addition to the checks of revision and capability. Nil: it does.
	offered func(*call) bool

	// mayLackMeta says that run calls call.addMeta before it shows its params to the program.
	mayLackMeta bool

	added bool // by AddMethod, which may replace it

	newCall func() *call // returns a call with memory for params and result
	decode  func(raw []byte, params any, unmarshal func([]byte, any) error) error
	run     func(ctx context.Context, r *Request) (result any, err error)
	encode  func(c *call, dst []byte, result any) ([]byte, error) // appends the encoded result to dst
}

// row returns a row for a method of the protocol.
func row[P, R any](name string, run func(ctx context.Context, c *call, params *P) (*R, error)) *method {
	info, ok := protocol.MethodInfo(name)
	if !ok { // a method of the program, which is in every revision
		info = protocol.Method{Name: name, Sender: protocol.ByClient, Since: protocol.Versions()[0]}
	}
	return &method{
		Method: info,
		newCall: func() *call {
			one := new(struct { // one allocation
				call
				params P
				result R
			})
			one.Params, one.scratch = &one.params, &one.result
			return &one.call
		},
		decode: func(raw []byte, params any, unmarshal func([]byte, any) error) error {
			// It may be the second try: the first one, without the _meta, may have filled in a part; see
			// decodeParams.
			*params.(*P) = *new(P)
			if err := unmarshal(raw, params); err != nil {
				return refusal.New(jsonrpc.CodeInvalidParams, "%s: %s", name, refusal.Explain(err))
			}
			return nil
		},
		run: func(ctx context.Context, r *Request) (any, error) {
			// A middleware may have passed on params of its own.
			params, ok := r.Params.(*P)
			if !ok {
				return nil, refusal.New(jsonrpc.CodeInternalError, "%s: params of type %T, want %T", name, r.Params, params)
			}
			result, err := run(ctx, r.call, params)
			if err != nil {
				return nil, err
			}
			return result, nil
		},
		encode: func(c *call, dst []byte, result any) ([]byte, error) {
			if typed, ok := result.(*R); ok && c.modern && typed != nil {
				copied := c.scratch.(*R)
				*copied = *typed // results may be shared
				result = copied
			}
			return encode(c, dst, result)
		},
	}
}

// anyRow returns a row for a method whose result has a different type in each era. No
// result is shared.
func anyRow[P any](name string, run func(ctx context.Context, c *call, params *P) (any, error)) *method {
	m := row(name, func(context.Context, *call, *P) (*struct{}, error) { return nil, nil })
	m.run = func(ctx context.Context, r *Request) (any, error) {
		params, ok := r.Params.(*P)
		if !ok {
			return nil, refusal.New(jsonrpc.CodeInternalError, "%s: params of type %T, want %T", name, r.Params, params)
		}
		return run(ctx, r.call, params)
	}
	m.encode = encode
	return m
}

// when restricts a row to the calls for which offered returns true. It replaces the
// check of the protocol's capability.
func (m *method) when(offered func(*call) bool) *method {
	m.offered, m.ServerCapability = offered, ""
	return m
}

// encode appends a result to dst. It changes a modern result first; see
// protocol.ModernResult.
func encode(c *call, dst []byte, result any) ([]byte, error) {
	modern, stamped := result.(protocol.ModernResult)
	start, meta := len(dst), json.RawMessage(nil)
	if stamped && c.modern {
		info := c.peer.server.rawInfo
		// The usual case: the _meta that says who the server is was encoded once, in New, and is copied in.
		if own, ok := result.(interface{ HasMeta() bool }); ok && !own.HasMeta() {
			info, meta = nil, c.peer.server.rawMeta
		}
		modern.Stamp(info)
	}
	dst, err := protocol.Append(dst, result, meta)
	if err != nil {
		return nil, refusal.New(jsonrpc.CodeInternalError, "%s: the result cannot be encoded: %s", c.Method, refusal.Explain(err))
	}
	if c.modern && !stamped {
		dst = append(dst[:start], complete(dst[start:])...)
	}
	return dst, nil
}

// complete adds "resultType": "complete" to the result of a method of the program, as
// 2026-07-28 requires, unless the result has a resultType.
func complete(result json.RawMessage) json.RawMessage {
	if len(result) < len("{}") || result[0] != '{' || !lacks(result, "resultType") {
		return result
	}
	const member = `{"resultType":"` + protocol.ResultComplete + `",`
	return appendRest([]byte(member), result)
}

// A connHandler serves the messages of one link.
type connHandler struct{ *peer }

// ServeRequest implements conn.Handler. It is the one place where the era of a
// request is decided: by the request itself (2026-07-28 basic/versioning). That
// also holds for a server that speaks no modern revision, since strangers may
// share the link that modern requests come in on and must not share a session.
func (h connHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return h.serve(ctx, in, nil)
}

// serve is ServeRequest. To may be nil.
func (h connHandler) serve(ctx context.Context, in *conn.Incoming, to *audited) (json.RawMessage, error) {
	// Read once: AddMethod may replace the row at any time, and a call goes on with the one that it began with.
	m := (*h.server.methods.Load())[in.Method]
	c := h.newCall(ctx, in, m)
	var err error
	if in.Size() <= turn.Small {
		err = c.read(m, to)
	} else { // whose frames would make the stack of every waiting call larger
		err = c.readInTurn(m, to)
	}
	if err != nil {
		return nil, err
	}
	// From here on, the record of an error says that the call has failed, unless nobody has the method.
	c.entered = true
	result, err := h.server.handlerFor(in)(c, &c.Request)
	c.finish()
	if err != nil {
		return nil, c.fault(err)
	}
	// The Conn first reserves room for the answer, and lets the call encode itself then: so many large results at
	// once do not all take memory.
	c.result = result
	in.SetResult(c)
	return nil, nil
}

func (c *call) readInTurn(m *method, to *audited) (err error) {
	if late := c.inTurn(c.in.Size(), func() { err = c.read(m, to) }); late != nil {
		return late
	}
	return err
}

// read identifies the client and decodes the params.
// The order decides which error a client gets. A method that a client was not offered is unknown to it, whatever the
// params are.
func (c *call) read(m *method, to *audited) error {
	if err := c.identify(); err != nil {
		return err
	}
	// Before anything else can fail, since a record says who asked.
	to.know(c)
	if !c.isOffered(m) {
		// Undecoded, for middleware and Options.Fallback. Without a row, innermost ends there.
		c.Params = c.in.Params
		return nil
	}
	if err := c.decodeParams(m); err != nil {
		return err
	}
	c.in.Params = nil // so that a long call does not keep its frame, unless that is mostly arguments
	c.method = m
	return nil
}

// ServeNotification implements conn.Handler.
// The Conn calls it one at a time, in the order in which notifications came. A client that has not said who it is
// gets an empty description.
func (h connHandler) ServeNotification(ctx context.Context, in *conn.Incoming) {
	c := h.newCall(ctx, in, nil)
	c.Notification = true
	c.Params = in.Params
	if session := h.session.Load(); session != nil {
		c.Session, c.Client = session, session.client
	} else {
		c.Client = new(Client)
	}
	_, _ = h.server.handlerFor(in)(c, &c.Request) // nobody waits for the result
}

// handlerFor returns the handler of a message. Middleware does not see what the client has not
// sent itself.
func (s *host) handlerFor(in *conn.Incoming) Handler {
	if in.Implied {
		return s.innermost
	}
	return s.handle
}

// wrap wraps the innermost handler in the middleware.
func (s *host) wrap(all []Middleware) Handler {
	var h Handler = s.innermost
	// Without middleware, the Conn makes the same error of a panic, with one frame less on the stack of every call.
	if len(all) > 0 {
		h = s.recovering
	}
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

// recovering is innermost for middleware, which gets a panic of a feature as an error.
func (s *host) recovering(ctx context.Context, r *Request) (result any, err error) {
	// No feature runs for these.
	if r.Outgoing {
		return s.innermost(ctx, r)
	}
	panicked := r.peer.guarded(r.Method, func() error {
		result, err = s.innermost(ctx, r)
		return nil
	})
	if panicked != nil {
		return nil, panicked
	}
	return result, err
}

// innermost is the end of the middleware chain, in both directions.
func (s *host) innermost(ctx context.Context, r *Request) (any, error) {
	switch {
	case r.Outgoing && r.Notification:
		return nil, r.notify(ctx)
	case r.Outgoing:
		return r.ask(ctx)
	case r.Notification:
		s.notified(ctx, r)
		return nil, nil
	case r.call.method != nil:
		return r.call.method.run(ctx, r)
	case s.options.Fallback != nil:
		return s.options.Fallback(ctx, r)
	default:
		return nil, refusal.New(jsonrpc.CodeMethodNotFound, "method not found: %s", refusal.Shorten(r.Method, refusal.LongestName))
	}
}

// notified handles a notification from a client. No request waits for "initialized": the
// server also serves a client that calls before it.
func (s *host) notified(ctx context.Context, r *Request) {
	switch r.Method {
	case protocol.NotificationInitialized:
		// In this order: until Begin nothing is sent, so all that may have been missed is announced together, when
		// each subscription is decided on.
		r.call.peer.restore(ctx, r.call.client())
		r.call.peer.changes.Begin()
	case protocol.NotificationRootsListChanged:
		if r.Session != nil && s.options.OnRootsChanged != nil {
			s.options.OnRootsChanged(ctx, r.Session)
		}
	default:
		if s.options.Fallback != nil {
			_, _ = s.options.Fallback(ctx, r) // nobody waits for the result
		}
	}
}
