package conn

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
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
func (r *record) auditor() Auditor {
	auditor, _ := r.own.handler.(Auditor)
	return auditor
}

// timesRequests reports whether somebody wants to know when a request came in.
func (r *record) timesRequests() bool {
	return r.options.Hooks.ServeStopped != nil || r.auditor() != nil
}

// tellServed tells the hook and the Auditor that the handler of a request from the peer has
// returned.
func (r *record) tellServed(request served, began, ended instant, err error) {
	in := request.Incoming
	event := telemetry.ServeStopped{
		Conn: r.own.name, Epoch: in.Epoch, Method: in.Method, Target: in.label,
		Queued: began - in.received, Duration: ended - began, Err: err,
	}
	switch ctx := request.ctx; {
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrDraining): // a request that ends because of a drain is still answered
		event.Outcome = telemetry.ServeCancelled
	case err == nil:
		event.Outcome = telemetry.ServeAnswered
	case errors.As(err, new(*PanicError)):
		event.Outcome, event.Code = telemetry.ServePanicked, in.failure
	default:
		event.Outcome, event.Code = telemetry.ServeFailed, in.failure
	}
	if hook := r.options.Hooks.ServeStopped; hook != nil && !in.Implied {
		r.reporter().tell(func() { hook(request.ctx, event) })
	}
	r.tellAuditor(request.ctx, in, event)
}

// tellAuditor tells the Auditor how a request has ended. The first call for a request counts.
func (r *record) tellAuditor(ctx context.Context, in *Incoming, e telemetry.ServeStopped) {
	auditor := r.auditor()
	if auditor == nil || in.Implied || in.mark(isAudited) {
		return
	}
	r.reportPanic("Audit", guard(func() error { auditor.RequestEnded(ctx, in, e); return nil }))
}

// tellUnserved gives back the room of a request whose handler was not called, because of err, and tells the Auditor.
func (r *record) tellUnserved(in *Incoming, err error) {
	in.letGo()
	if r.auditor() == nil {
		return
	}
	e := r.ended(in, telemetry.ServeCancelled, err)
	switch why := err.(type) { //nolint:errorlint // the reason of an end may wrap such an error, too
	case *jsonrpc.DecodeError:
		e.Outcome, e.Code = telemetry.ServeMalformed, why.Code
	case *jsonrpc.Error:
		e.Outcome, e.Code = telemetry.ServeRefused, why.Code
	}
	r.tellAuditor(withValues(context.Background(), in.Origin), in, e)
}

// tellStuck tells the Auditor of a request whose handler does not return.
func (r *record) tellStuck(in *Incoming) {
	if r.auditor() != nil {
		r.tellAuditor(withValues(context.Background(), in.Origin), in, r.ended(in, telemetry.ServeCancelled, errStuck))
	}
}

var errStuck = errors.New("conn: the handler goes on although its context has ended")

// ended returns how a request has ended that has waited until now.
func (r *record) ended(in *Incoming, how telemetry.Outcome, err error) telemetry.ServeStopped {
	var waited time.Duration
	if in.received != 0 {
		waited = r.now() - in.received
	}
	return telemetry.ServeStopped{Conn: r.own.name, Epoch: in.Epoch, Method: in.Method, Target: in.Target(), Outcome: how, Queued: waited, Err: err}
}
