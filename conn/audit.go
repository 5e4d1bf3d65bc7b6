package conn

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// An Auditor is a Handler that learns how each request from the peer has ended, also if
// ServeRequest was not called for it.
type Auditor interface {
	Handler

	// RequestEnded is called exactly once for each request that came in, and for each frame
	// that was no message but has to be answered. It is called before the answer is sent. If
	// ServeRequest has returned, RequestEnded runs on the same goroutine, with the same ctx.
	// Otherwise it delays the connection, or the goroutine that reads the link. Of a handler
	// that does not return after its request was cancelled, it is told meanwhile
	// (ServeCancelled); treat what that handler uses as its own.
	//
	// RequestEnded must return soon, and must not use the Conn. A panic ends only its own
	// call, and is reported as one of "Audit".
	//
	// In.Method is empty if the frame was no message. The outcome may be ServeRefused or
	// ServeMalformed. Probes of the peer are requests, too.
	RequestEnded(ctx context.Context, in *Incoming, e telemetry.ServeStopped)
}

// auditor returns the handler, if it is an Auditor.
func (c *Conn) auditor() Auditor {
	auditor, _ := c.own.handler.(Auditor)
	return auditor
}

// timesRequests reports whether somebody wants to know when a request came in.
func (c *Conn) timesRequests() bool { return c.options.Hooks.ServeStopped != nil || c.auditor() != nil }

// tellAuditor tells the Auditor how a request has ended. The first call for a request counts.
func (c *Conn) tellAuditor(ctx context.Context, in *Incoming, e telemetry.ServeStopped) {
	auditor := c.auditor()
	if auditor == nil || in.Implied || in.mark(isAudited) {
		return
	}
	c.reportPanic("Audit", guard(func() error { auditor.RequestEnded(ctx, in, e); return nil }))
}

// tellUnserved gives back the room of a request whose handler was not called, because of err, and tells the Auditor.
func (c *Conn) tellUnserved(in *Incoming, err error) {
	in.letGo()
	if c.auditor() == nil {
		return
	}
	e := c.ended(in, telemetry.ServeCancelled, err)
	switch why := err.(type) { //nolint:errorlint // the reason of an end may wrap such an error, too
	case *jsonrpc.DecodeError:
		e.Outcome, e.Code = telemetry.ServeMalformed, why.Code
	case *jsonrpc.Error:
		e.Outcome, e.Code = telemetry.ServeRefused, why.Code
	}
	c.tellAuditor(withValues(context.Background(), in.Origin), in, e)
}

// tellMalformed tells the Auditor of a frame that is no message.
func (r *receiver) tellMalformed(stream transport.Stream, from source, err *jsonrpc.DecodeError) {
	if r.conn.auditor() != nil {
		r.conn.tellUnserved(r.incoming(stream, &jsonrpc.Message{ID: err.ID}, 0, from), err)
	}
}

// tellProbed tells the Auditor of a probe of the peer, which the Conn answers itself.
func (r *receiver) tellProbed(stream transport.Stream, m *jsonrpc.Message, from source) {
	if c := r.conn; c.auditor() != nil {
		in := r.incoming(stream, m, 0, from)
		c.tellAuditor(withValues(context.Background(), in.Origin), in, c.ended(in, telemetry.ServeAnswered, nil))
	}
}

// tellStuck tells the Auditor of a request whose handler does not return.
func (c *Conn) tellStuck(in *Incoming) {
	if c.auditor() != nil {
		c.tellAuditor(withValues(context.Background(), in.Origin), in, c.ended(in, telemetry.ServeCancelled, errStuck))
	}
}

var errStuck = errors.New("conn: the handler goes on although its context has ended")

// ended returns how a request has ended that has waited until now.
func (c *Conn) ended(in *Incoming, how telemetry.Outcome, err error) telemetry.ServeStopped {
	var waited time.Duration
	if in.received != 0 {
		waited = c.now() - in.received
	}
	return telemetry.ServeStopped{Conn: c.own.name, Epoch: in.Epoch, Method: in.Method, Target: in.Target(), Outcome: how, Queued: waited, Err: err}
}

// endRequests tells the Auditor, as tellUnserved does, of the requests that no step of the core will end, because the
// loop breaks off: those whose handlers were not started.
func (l *loop) endRequests(why error, effects []effect, events []event) {
	for i := range effects {
		if fx := &effects[i]; fx.kind == unserved {
			l.conn.tellUnserved(fx.incoming, fx.err)
		}
	}
	for in := range l.core.incoming.all() {
		if in.serving.cancel == nil {
			l.conn.tellUnserved(in, why)
		}
	}
	for i := range events {
		l.endRequest(why, &events[i])
	}
}

// endRequest tells the Auditor of the request that an event brings, if it brings one.
func (l *loop) endRequest(why error, ev *event) {
	if ev.kind == requested {
		l.conn.tellUnserved(ev.incoming, why)
	}
}
