package otel

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A carrier receives a trace context, or provides one.
type carrier struct{ telemetry.Trace }

func (c *carrier) field(key string) *string {
	switch key {
	case protocol.MetaTraceparent:
		return &c.Parent
	case protocol.MetaTracestate:
		return &c.State
	case protocol.MetaBaggage:
		return &c.Baggage
	default:
		return nil
	}
}

func (c *carrier) Get(key string) string {
	if field := c.field(key); field != nil {
		return *field
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	if field := c.field(key); field != nil {
		*field = value
	}
}

func (c *carrier) Keys() []string {
	return []string{protocol.MetaTraceparent, protocol.MetaTracestate, protocol.MetaBaggage}
}

// inject returns a context whose messages carry its trace context.
func (t *Telemetry) inject(ctx context.Context) context.Context {
	if t.propagator == (propagation.TraceContext{}) { // as always, if Options.Propagator is nil
		span := trace.SpanContextFromContext(ctx)
		if !span.IsValid() {
			return ctx
		}
		return telemetry.WithTrace(ctx, telemetry.Trace{Parent: traceparent(&span), State: span.TraceState().String()})
	}
	c := t.newCarrier()
	defer t.carriers.Put(c)
	if t.propagator.Inject(ctx, c); c.Trace == (telemetry.Trace{}) {
		return ctx
	}
	return telemetry.WithTrace(ctx, c.Trace)
}

// traceparent returns what propagation.TraceContext injects.
func traceparent(span *trace.SpanContext) string {
	text := []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	id, parent := span.TraceID(), span.SpanID()
	hex.Encode(text[3:], id[:])
	hex.Encode(text[36:], parent[:])
	hex.Encode(text[53:], []byte{byte(span.TraceFlags() & (trace.FlagsSampled | trace.FlagsRandom))})
	return string(text)
}

// newCarrier takes an empty carrier from the pool.
func (t *Telemetry) newCarrier() *carrier {
	c, ok := t.carriers.Get().(*carrier)
	if !ok {
		return new(carrier)
	}
	*c = carrier{}
	return c
}

// maxTexts are the maximum sizes of what a peer sends, in bytes.
var maxTexts = map[string]int{protocol.MetaTraceparent: 512, protocol.MetaTracestate: 512, protocol.MetaBaggage: 8192}

// extract returns a context with the peer's span, if the params name one, and a link to the
// span that ctx had. It ignores and counts a malformed trace context.
func (t *Telemetry) extract(ctx context.Context, params any) (context.Context, trace.Link) {
	meta := protocol.MetaOf(params)
	c := new(carrier)
	refused := false
	for key, most := range maxTexts {
		raw, ok := meta[key]
		if !ok {
			continue
		}
		if len(raw) > most+2 || json.Unmarshal(raw, c.field(key)) != nil {
			*c.field(key), refused = "", true
		}
	}
	ambient := trace.SpanContextFromContext(ctx)
	remote := t.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), c)
	parent := trace.SpanContextFromContext(remote)
	if (refused || c.Parent != "" && !parent.IsValid()) && t.metrics != nil {
		t.metrics.refusedTraces.Add(ctx, 1)
	}
	switch {
	case !parent.IsValid():
		return ctx, trace.Link{}
	case ambient.IsValid():
		return remote, trace.Link{SpanContext: ambient}
	default:
		return remote, trace.Link{}
	}
}
