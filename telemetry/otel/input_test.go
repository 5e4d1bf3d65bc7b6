package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
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

// Error codes that nobody defines are one series of each method, and spans have their number.
// The codes of JSON-RPC, MCP and Bowline have series of their own.
//
// Guarantees: G-0047.8
func TestInventedErrorCodes(t *testing.T) {
	reader, spans := metric.NewManualReader(), tracetest.NewInMemoryExporter()
	told, err := otel.New(otel.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)), TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	})
	if err != nil {
		t.Fatal(err)
	}
	type code struct {
		Code int64 `json:"code"`
	}
	peer := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Middleware: []server.Middleware{told.Server()}})
	server.AddTool(peer, protocol.Tool{Name: "fail"}, func(_ context.Context, a code) (string, error) {
		return "", &jsonrpc.Error{Code: a.Code, Message: "no"}
	})
	defer peer.Close(context.Background())
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Middleware: []client.Middleware{told.Client()}})
	defer c.Close(context.Background())
	s, err := c.Connect(t.Context(), inmem.New(peer.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defined := []int64{-32700, -32600, -32601, -32602, -32603, -32002, -32020, -32021, -32042, -32050, -1}
	invented := []int64{0, 7, -32000, -32099, math.MinInt64, math.MaxInt64}
	for i := range int64(1200) {
		invented = append(invented, 1000+i)
	}
	for _, n := range slices.Concat(defined, invented) {
		if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "fail", Arguments: json.RawMessage(fmt.Sprintf(`{"code":%d}`, n))}); err == nil {
			t.Fatalf("the call that fails with %d succeeds", n)
		}
	}
	known := []string{"_OTHER"}
	for _, n := range defined {
		known = append(known, strconv.FormatInt(n, 10))
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if !strings.HasSuffix(m.Name, ".operation.duration") {
			continue
		}
		calls := make(map[string]uint64)
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			code, there := p.Attributes.Value("rpc.response.status_code")
			if method, _ := p.Attributes.Value("mcp.method.name"); method.AsString() != protocol.MethodCallTool || !there {
				continue
			}
			calls[code.AsString()] += p.Count
			if kind, there := p.Attributes.Value("error.type"); there && kind != code {
				t.Errorf("%s of code %s has the error.type %s, want the same", m.Name, code.AsString(), kind.AsString())
			}
		}
		for _, n := range known[1:] {
			if calls[n] == 0 {
				t.Errorf("%s has no series of code %s", m.Name, n)
			}
		}
		if len(calls) != len(known) || calls["_OTHER"] != uint64(len(invented)) {
			t.Errorf("%s has %d codes, _OTHER of them counts %d, want %d and %d", m.Name, len(calls), calls["_OTHER"], len(known), len(invented))
		}
	}
	numbered := 0
	for _, span := range spans.GetSpans() {
		if attributeOf(span, "rpc.response.status_code") == "2199" && attributeOf(span, "error.type") == "2199" {
			numbered++
		}
	}
	if numbered != 2 {
		t.Errorf("%d spans have the number of an invented code, want those of the client and of the server", numbered)
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

// A tool that nobody lists is none of those by which calls are counted, also where a server answers it: such as one of another server, behind
// a gateway, whose names are as many as its clients invent.
//
// Guarantees: G-0047.8
func TestANameThatNobodyListsIsAnswered(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[]}`), nil
	}
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
		Middleware: []server.Middleware{told.Server()}, Route: map[string]server.RawHandler{protocol.MethodCallTool: answer},
		Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
	})
	defer s.Close(context.Background())
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Middleware: []client.Middleware{told.Client()}})
	defer c.Close(context.Background())
	session, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "a"} {
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close(context.Background()) // it has measured its last call then
	for name, m := range (&site{reader: reader}).collect(t) {
		if !strings.HasSuffix(name, ".operation.duration") {
			continue
		}
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			if tool, ok := p.Attributes.Value("gen_ai.tool.name"); ok && (tool.AsString() != "_OTHER" || p.Count != 3) {
				t.Errorf("%s counts %d calls of %s", name, p.Count, tool.AsString())
			}
		}
	}
}
