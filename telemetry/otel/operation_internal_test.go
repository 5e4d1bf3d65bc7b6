package otel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Patterns are kept for a bounded number of operations, and for none that has a URI or a long
// name. Other operations get a new pattern each.
//
// Guarantees: G-0064.2
func TestFewPatternsAreKept(t *testing.T) {
	told, err := New(Options{TracerProvider: noop.NewTracerProvider(), ResourceInName: true})
	if err != nil {
		t.Fatal(err)
	}
	start := func(op operation) {
		op.network = overPipe
		told.start(t.Context(), told.patternOf(&op, "c", trace.SpanKindClient), trace.SpanKindClient, trace.Link{})
	}
	start(operation{method: "resources/read", uri: "file:///a"})
	start(operation{method: "tools/call", tool: strings.Repeat("a", maxName+1)})
	if kept := len(told.patterns.all()); kept != 0 {
		t.Errorf("%d are kept", kept)
	}
	for i := range maxSets + 10 {
		start(operation{method: "tools/call", tool: fmt.Sprint(i)})
	}
	if kept := len(told.patterns.all()); kept != maxSets {
		t.Errorf("%d are kept, want %d", kept, maxSets)
	}
}

// Operations get the pattern with their own key, even if others have the same slot.
func TestPatternsWithTheSameSlot(t *testing.T) {
	told, err := New(Options{TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[*pattern]patternKey)
	for range 2 { // the second time they are found
		for i := range 10 * slots {
			key := patternKey{operation{method: "tools/call", tool: fmt.Sprint(i), network: overPipe}, fmt.Sprint("c", i%7), trace.SpanKindClient}
			found := told.patternOf(&key.operation, key.conn, key.kind)
			if other, ok := keys[found]; ok && other != key || found.name != "tools/call "+key.tool {
				t.Fatalf("%+v got the pattern of %+v", key, other)
			}
			keys[found] = key
		}
	}
	if want := 10 * slots; len(keys) != want {
		t.Errorf("%d patterns, want %d", len(keys), want)
	}
}

// When there are maxSets of attributes, further operations still say which method they are of, and
// those that have succeeded do not count as failed.
//
// Guarantees: G-0047.8
func TestOperationsBeyondTheLimitHaveTheirMethod(t *testing.T) {
	told, err := New(Options{MeterProvider: metricnoop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	setOf := func(method, tool string, f failure) string {
		op := operation{method: method, tool: tool, network: overPipe}
		attributes := metric.NewRecordConfig(told.metrics.setOf(&op, f, true).record).Attributes()
		return attributes.Encoded(attribute.DefaultEncoder())
	}
	for i := range maxSets {
		setOf(protocol.MethodCallTool, fmt.Sprint(i), failure{})
	}
	for _, c := range []struct {
		method, tool string
		failure      failure
		want         string
	}{
		{protocol.MethodCallTool, "1", failure{}, "gen_ai.operation.name=execute_tool,gen_ai.tool.name=1,mcp.method.name=tools/call,network.transport=pipe"},
		{protocol.MethodCallTool, "new", failure{}, "gen_ai.operation.name=_OTHER,gen_ai.tool.name=_OTHER,mcp.method.name=tools/call,network.transport=_OTHER"},
		{protocol.MethodPing, "", failure{}, "mcp.method.name=ping,network.transport=_OTHER"},
		{protocol.MethodPing, "", internalError, "error.type=_OTHER,mcp.method.name=ping,network.transport=_OTHER,rpc.response.status_code=_OTHER"},
		{"nobody/knows", "", failure{}, "mcp.method.name=_OTHER,network.transport=_OTHER"},
	} {
		if got := setOf(c.method, c.tool, c.failure); got != c.want {
			t.Errorf("%s %s: %s\nwant %s", c.method, c.tool, got, c.want)
		}
	}
}

// For who serves a request, a code that blames the caller is no failure. For the caller
// every code is.
//
// Guarantees: G-0047.2
func TestCodesThatBlameTheCaller(t *testing.T) {
	for code, blames := range map[int64]bool{
		-32700: true, -32600: true, -32601: true, -32602: true, -32002: true,
		-32603: false, -32000: false, -32001: false, -32021: false, -32022: false, 1: false,
	} {
		err := &jsonrpc.Error{Code: code, Message: "no"}
		f, text := failureServed(t.Context(), nil, err), fmt.Sprint(code)
		if wants := map[bool]string{false: text}[blames]; f.kind != wants || f.code != text {
			t.Errorf("%d: served with %+v, want error.type %q", code, f, wants)
		}
		if f := failureOf(nil, err); f.kind != text || f.code != text {
			t.Errorf("%d: called with %+v", code, f)
		}
	}
}

// What is kept of a connection is dropped with it.
func TestSeriesOfTheGoneAreDropped(t *testing.T) {
	p, from := newParts(), new(source)
	for round := range uint64(10) {
		for i := range 50 {
			name := p.name(from, &telemetry.Sample{Name: fmt.Sprint(round, " ", i), Conn: new(telemetry.ConnSample)}, round)
			p.of(name, round).of(labels{keyState.String("ready")})
		}
		if p.forget(round); len(p.known) != 50 || len(p.shared) != 50 {
			t.Errorf("%d series and %d names are kept", len(p.known), len(p.shared))
		}
	}
}

// A tool that was called before the server listed it is known from then on, and so is a prompt, wherever in the list it is.
//
// Guarantees: G-0064.3
func TestNamesAreKnownOnceListed(t *testing.T) {
	var n names
	by := new(pattern)
	for range 2 {
		if n.knows("a", by) {
			t.Fatal("a name is known that nobody has listed")
		}
	}
	n.learn(&protocol.ListToolsResult{Tools: []*protocol.Tool{{Name: "b"}}})
	for range 2 {
		if n.knows("a", by) {
			t.Fatal("another name was listed")
		}
	}
	n.learn(&protocol.ListToolsResult{Tools: []*protocol.Tool{{Name: "a"}}})
	for range 2 {
		if !n.knows("a", by) || !n.knows("a", nil) {
			t.Fatal("a listed name is not known")
		}
	}
	n.learn(&protocol.ListPromptsResult{Prompts: []*protocol.Prompt{{Name: "a"}, nil, {Name: "c"}}})
	if !n.knows("c", nil) {
		t.Fatal("a name that is listed after a known one is not known")
	}
}

// The trace context that is written without a carrier is that of OpenTelemetry's own propagator.
//
// Guarantees: G-0047.1, G-0064.4
func TestTraceparentIsThatOfTheStandardPropagator(t *testing.T) {
	direct, err := New(Options{TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	carried, err := New(Options{Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{})})
	if err != nil {
		t.Fatal(err)
	}
	state, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	for flags := range 256 {
		for _, config := range []trace.SpanContextConfig{
			{TraceID: trace.TraceID{1, 0xab, 15: byte(flags)}, SpanID: trace.SpanID{0xef, 7: byte(flags)}},
			{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 1}, TraceState: state},
			{TraceID: trace.TraceID{15: 1}},
			{},
		} {
			config.TraceFlags = trace.TraceFlags(flags)
			ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(config))
			span := trace.SpanFromContext(ctx)
			got, want := telemetry.TraceFrom(direct.inject(ctx, span)), telemetry.TraceFrom(carried.inject(ctx, span))
			if (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Fatalf("%+v: %+v, want %+v", config, got, want)
			}
		}
	}
}

// A question that a client cannot answer is answered with an internal error, except a form, which is dismissed, and a
// question that came with the answer to a call: then no code was sent.
func TestFailureOfAQuestion(t *testing.T) {
	ours := errors.New("the program's")
	for name, test := range map[string]struct {
		s        served
		method   string
		returned bool
		want     failure
	}{
		"a request":              {served{id: jsonrpc.IntegerID(1)}, protocol.MethodElicit, true, internalError},
		"a form":                 {served{id: jsonrpc.IntegerID(1), question: true}, protocol.MethodElicit, true, failure{kind: other}},
		"a form, and a panic":    {served{id: jsonrpc.IntegerID(1), question: true}, protocol.MethodElicit, false, internalError},
		"sampling":               {served{id: jsonrpc.IntegerID(1), question: true}, protocol.MethodCreateMessage, true, internalError},
		"with the answer":        {served{question: true}, protocol.MethodCreateMessage, true, failure{kind: other}},
		"with it, and it panics": {served{question: true}, protocol.MethodCreateMessage, false, failure{kind: other}},
	} {
		if got := test.s.failure(t.Context(), &operation{method: test.method}, nil, ours, test.returned); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
