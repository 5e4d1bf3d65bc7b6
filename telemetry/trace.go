package telemetry

import "context"

// A Trace is the trace context of a message, in the words of W3C. MCP carries it in
// params._meta, as members of these names.
type Trace struct{ Parent, State, Baggage string } // traceparent, tracestate, baggage

// WithTrace returns a context whose requests, questions and notifications carry the
// trace context. It is for tracers: for their middleware of clients and servers, and
// for Hooks.RequestStarted. What the program itself put into _meta wins. A client
// without either looks for none.
func WithTrace(ctx context.Context, t Trace) context.Context { return &traced{ctx, t} }

// TraceFrom returns the trace context that WithTrace has added, or nil.
func TraceFrom(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

type traceKey struct{}

type traced struct {
	context.Context
	trace Trace
}

func (t *traced) Value(key any) any {
	if key == (traceKey{}) {
		return &t.trace
	}
	return t.Context.Value(key)
}
