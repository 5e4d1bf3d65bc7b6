package telemetry

import "context"

// A Trace is the trace context of a message, as W3C defines it. MCP sends it in
// params._meta, in the members traceparent, tracestate and baggage.
type Trace struct{ Parent, State, Baggage string } // traceparent, tracestate, baggage

// WithTrace returns a context that adds the trace context to requests, questions and
// notifications. Tracers call it in middleware of clients and servers, and in
// Hooks.RequestStarted. Values that the program itself has set in _meta take precedence.
// A client without middleware and without that hook sends no trace context.
func WithTrace(ctx context.Context, t Trace) context.Context { return &traced{ctx, t} }

// TraceFrom returns the trace context that WithTrace added, or nil.
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
