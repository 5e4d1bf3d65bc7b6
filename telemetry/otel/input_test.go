package otel_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

const (
	goodParent = `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	goodID     = "b7ad6b7169203331"
)

// What is malformed or too long of a trace context is ignored and counted, and the rest
// of it is taken. Without a parent the span is a new root.
//
// Guarantees: G-0047.4
func TestMalformedTracesAreIgnored(t *testing.T) {
	megabyte := `"k=` + strings.Repeat("v", 1<<20) + `"`
	for name, test := range map[string]struct {
		params  string // of the call, after its name
		parent  string // of the SERVER span
		refused int64
	}{
		"good":                {`"_meta":{"traceparent":` + goodParent + `,"tracestate":"a=b","baggage":"k=v"}`, goodID, 0},
		"zeros":               {`"_meta":{"traceparent":"00-00000000000000000000000000000000-0000000000000000-01"}`, "", 1},
		"version ff":          {`"_meta":{"traceparent":"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`, "", 1},
		"a number":            {`"_meta":{"traceparent":7}`, "", 1},
		"no trace":            {`"_meta":{"traceparent":"x"}`, "", 1},
		"empty":               {`"_meta":{"traceparent":""}`, "", 0},
		"a megabyte":          {`"_meta":{"traceparent":` + megabyte + `}`, "", 1},
		"a megabyte of state": {`"_meta":{"traceparent":` + goodParent + `,"tracestate":` + megabyte + `}`, goodID, 1},
		"baggage":             {`"_meta":{"traceparent":` + goodParent + `,"baggage":` + megabyte + `}`, goodID, 1},
		"baggage alone":       {`"_meta":{"baggage":` + megabyte + `}`, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "memory", protocol.LatestLegacy, otel.Options{
				Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
			})
			s.spans.Reset()
			if _, err := s.Request(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"add",`+test.params+`}`)); err != nil {
				t.Fatal(err)
			}
			served := s.of(t, trace.SpanKindServer, 1)
			if len(served) != 1 {
				t.Fatalf("%d SERVER spans", len(served))
			}
			parent := ""
			if served[0].Parent.IsValid() {
				parent = served[0].Parent.SpanID().String()
			}
			if own := s.of(t, trace.SpanKindClient, 1)[0].SpanContext.SpanID().String(); parent == own {
				parent = "" // the client has added its own, where there was none
			}
			if parent != test.parent {
				t.Errorf("the parent is %q, want %q", parent, test.parent)
			}
			refused := int64(0)
			if m, there := s.collect(t)["bowline.debug.trace.refused"]; there {
				refused = numbers64(m)
			}
			if refused != test.refused {
				t.Errorf("%d were refused, want %d", refused, test.refused)
			}
		})
	}
}

// Two traceparents are no JSON object, so the request is refused, and counted.
func TestTwoTraceparents(t *testing.T) {
	s := newSite(t, "memory", protocol.LatestLegacy, otel.Options{})
	twice := `{"name":"add","_meta":{"traceparent":` + goodParent + `,"traceparent":` + goodParent + `}}`
	if _, err := s.Request(t.Context(), protocol.MethodCallTool, json.RawMessage(twice)); err == nil {
		t.Error("it is taken")
	}
	if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add"}); err != nil {
		t.Errorf("and then: %v", err)
	}
}

// A thousand and more names that nobody has listed are one series. Spans and lines have
// them cut, without what does not print.
//
// Guarantees: G-0047.8
func TestInventedNames(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest, otel.Options{})
	names := []string{"a\nb", `quote"d`, "left\u202eright", "\x1b[31m", strings.Repeat("x", 1<<20), strings.Repeat("é", 300)}
	for i := range 1200 {
		names = append(names, fmt.Sprintf("invented %d", i))
	}
	for _, name := range names {
		if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: name}); err == nil {
			t.Fatalf("there is a tool %q", name)
		}
	}
	if _, err := s.Request(t.Context(), "nobody/knows", json.RawMessage(`{}`)); err == nil {
		t.Error("there is a method of no protocol")
	}
	s.ended()
	for _, span := range s.spans.GetSpans() {
		texts := []string{span.Name, span.Status.Description}
		for _, a := range span.Attributes {
			texts = append(texts, a.Value.String())
		}
		for _, text := range texts {
			if utf8.RuneCountInString(text) > 150 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("a span has %.200q", text)
			}
		}
	}
	all := s.collect(t)
	for _, name := range []string{"mcp.client.operation.duration", "mcp.server.operation.duration"} {
		points := all[name].Data.(metricdata.Histogram[float64]).DataPoints
		methods := make(map[string]uint64)
		for _, p := range points {
			method, _ := p.Attributes.Value("mcp.method.name")
			if tool, ok := p.Attributes.Value("gen_ai.tool.name"); ok && tool.AsString() != "_OTHER" {
				t.Errorf("%s has the tool %q", name, tool.AsString())
			}
			methods[method.AsString()] += p.Count
		}
		if methods["tools/call"] != uint64(len(names)) || methods["_OTHER"] != 1 || len(points) > 10 {
			t.Errorf("%s has %d series: %v", name, len(points), methods)
		}
	}
	for line := range strings.Lines(s.logs.String()) {
		if len(line) > 4<<10 || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a line is %.300q", line)
			break
		}
	}
}

// Two who collect at once are both served.
func TestTwoCollectAtOnce(t *testing.T) {
	c := newCrowded(t)
	c.call(t.Context(), c.sessions[0], 5)
	var collecting sync.WaitGroup
	for range 2 {
		collecting.Go(func() {
			for range 20 {
				if numbers(c.collect(t)["bowline.conn.up"], "bowline.conn") == nil {
					t.Error("nothing was collected")
				}
			}
		})
	}
	c.call(t.Context(), c.sessions[1], 20)
	collecting.Wait()
}
