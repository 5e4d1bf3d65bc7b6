package otel

import (
	"encoding/json"
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
)

// A trace context that is read without a carrier is that of OpenTelemetry's own propagator.
//
// Guarantees: G-0047.4, G-0064.4
func FuzzExtract(f *testing.F) {
	const good = `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	for _, parent := range []string{
		good, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"`, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"`,
		`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-04"`, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A"`,
		`"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01"`,
		`"00-00000000000000000000000000000000-b7ad6b7169203331-01"`, `"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"`,
		`"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-00"`,
		`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333"-01"`, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920\\u0031"`,
		`"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"`, `7`, `null`, `""`, ``,
	} {
		f.Add(parent, "", "")
	}
	f.Add(good, `"a=1"`, "")
	f.Add(good, "", `"k=v"`)
	f.Add(good, `""`, `7`)
	direct, err := New(Options{})
	if err != nil {
		f.Fatal(err)
	}
	carried, err := New(Options{Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{})})
	if err != nil {
		f.Fatal(err)
	}
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	f.Fuzz(func(t *testing.T, parent, state, baggage string) {
		meta := protocol.Meta{}
		for key, raw := range map[string]string{
			protocol.MetaTraceparent: parent, protocol.MetaTracestate: state, protocol.MetaBaggage: baggage,
		} {
			if json.Valid([]byte(raw)) { // as the server has made sure
				meta[key] = json.RawMessage(raw)
			}
		}
		params := &protocol.CallToolParams{RequestParams: protocol.RequestParams{Meta: meta}}
		for _, ambient := range []trace.SpanContext{{}, own} {
			ctx := trace.ContextWithSpanContext(t.Context(), ambient)
			got, link := direct.extract(ctx, params)
			want, wantLink := carried.extract(ctx, params)
			if got, want := trace.SpanContextFromContext(got), trace.SpanContextFromContext(want); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", parent, got, want)
			}
			if !reflect.DeepEqual(link, wantLink) {
				t.Errorf("%s: the link is %+v, want %+v", parent, link, wantLink)
			}
		}
	})
}

// A peer that sends baggage without a span has its baggage taken. The span that there was stays.
func TestBaggageNeedsNoTraceparent(t *testing.T) {
	told, err := New(Options{Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})})
	if err != nil {
		t.Fatal(err)
	}
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	for _, ambient := range []trace.SpanContext{{}, own} {
		for text, want := range map[string]string{`{"baggage":"k=v"}`: "v", `{"baggage":"k=v","traceparent":"x"}`: "v", `{"baggage":"k=v","traceparent":7}`: "v", `{"baggage":7}`: "", `{}`: ""} {
			var meta protocol.Meta
			if err := json.Unmarshal([]byte(text), &meta); err != nil {
				t.Fatal(err)
			}
			ctx, link := told.extract(trace.ContextWithSpanContext(t.Context(), ambient), &protocol.CallToolParams{RequestParams: protocol.RequestParams{Meta: meta}})
			if got := baggage.FromContext(ctx).Member("k").Value(); got != want {
				t.Errorf("%s: the baggage has %q, want %q", text, got, want)
			}
			if got := trace.SpanContextFromContext(ctx); !got.Equal(ambient) || link.SpanContext.IsValid() {
				t.Errorf("%s: the span is %+v with the link %+v, want %+v without a link", text, got, link, ambient)
			}
		}
	}
}
