package otel

import (
	"context"
	"encoding/hex"
	"encoding/json"

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

// inject returns a context whose messages carry its trace context. Span is that of the context.
func (t *Telemetry) inject(ctx context.Context, span trace.Span) context.Context {
	if t.isStandard {
		about := span.SpanContext()
		if !about.IsValid() {
			return ctx
		}
		return telemetry.WithTrace(ctx, telemetry.Trace{Parent: traceparent(&about), State: about.TraceState().String()})
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
	const form = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var text [len(form)]byte // no conversion of the text, which would allocate it
	copy(text[:], form)
	id, parent := span.TraceID(), span.SpanID()
	hex.Encode(text[3:], id[:])
	hex.Encode(text[36:], parent[:])
	hex.Encode(text[53:], []byte{byte(span.TraceFlags() & (trace.FlagsSampled | trace.FlagsRandom))})
	return string(text[:])
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
var maxTexts = [...]struct {
	key  string
	most int
}{{protocol.MetaTraceparent, 512}, {protocol.MetaTracestate, 512}, {protocol.MetaBaggage, 8192}}

// extract returns a context with the peer's baggage, and with the peer's span, if the params name
// one, and then a link to the span that ctx had. It ignores and counts a malformed trace context.
func (t *Telemetry) extract(ctx context.Context, params any) (context.Context, trace.Link) {
	meta := protocol.MetaOf(params)
	link := trace.Link{SpanContext: trace.SpanContextFromContext(ctx)}
	if t.isStandard {
		if parent, ok := plainParent(meta); ok {
			return trace.ContextWithSpanContext(ctx, parent), link
		}
	}
	c, refused := carried(meta)
	remote := t.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), c)
	parent := trace.SpanContextFromContext(remote)
	if (refused || c.Parent != "" && !parent.IsValid()) && t.metrics != nil {
		t.metrics.refusedTraces.Add(ctx, 1)
	}
	switch {
	case parent.IsValid():
		return remote, link
	case c.Baggage != "":
		return trace.ContextWithSpan(remote, trace.SpanFromContext(ctx)), trace.Link{}
	default:
		return ctx, trace.Link{}
	}
}

// carried reads the texts of a trace context, and reports whether one is no text or is too long. That one is left out.
func carried(meta protocol.Meta) (c *carrier, refused bool) {
	c = new(carrier)
	for _, text := range maxTexts {
		raw, ok := meta[text.key]
		if ok && (len(raw) > text.most+2 || json.Unmarshal(raw, c.field(text.key)) != nil) {
			*c.field(text.key), refused = "", true
		}
	}
	return c, refused
}

// plainParent returns what propagation.TraceContext extracts from a _meta with a traceparent of
// version 00 and no more of a trace context. It reports false if it is not sure.
func plainParent(meta protocol.Meta) (trace.SpanContext, bool) {
	const form = `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	raw := meta[protocol.MetaTraceparent]
	if len(raw) != len(form) || string(raw[:4]) != form[:4] || raw[36] != '-' || raw[53] != '-' || raw[56] != '"' {
		return trace.SpanContext{}, false
	}
	if meta[protocol.MetaTracestate] != nil || meta[protocol.MetaBaggage] != nil {
		return trace.SpanContext{}, false
	}
	for _, c := range raw {
		if 'A' <= c && c <= 'F' {
			return trace.SpanContext{}, false
		}
	}
	var flags [1]byte
	parent := trace.SpanContextConfig{Remote: true}
	for _, part := range [...]struct{ into, from []byte }{{parent.TraceID[:], raw[4:36]}, {parent.SpanID[:], raw[37:53]}, {flags[:], raw[54:56]}} {
		if _, err := hex.Decode(part.into, part.from); err != nil {
			return trace.SpanContext{}, false
		}
	}
	parent.TraceFlags = trace.TraceFlags(flags[0])
	span := trace.NewSpanContext(parent)
	return span, span.IsValid() && parent.TraceFlags&^(trace.FlagsSampled|trace.FlagsRandom) == 0
}
