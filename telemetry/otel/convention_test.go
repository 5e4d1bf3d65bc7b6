package otel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// A signal is a column of the convention.
type signal int

const (
	clientSpan signal = iota
	serverSpan
	clientOperation
	serverOperation
	clientSession
	serverSession
	signals
)

// A convention is what testdata/mcp-convention.txt says.
type convention struct {
	types   map[string]string
	levels  map[string][]string // by signal
	metrics map[string]string   // their units
	buckets []float64
	blaming []string // codes that are no error of who serves
}

func readConvention(t *testing.T) *convention {
	t.Helper()
	text, err := os.ReadFile("testdata/mcp-convention.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := &convention{make(map[string]string), make(map[string][]string), make(map[string]string), nil, nil}
	for row := range strings.Lines(string(text)) {
		switch words := strings.Fields(row); {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "attribute" && len(words) == 3+int(signals):
			c.types[words[1]], c.levels[words[1]] = words[2], words[3:]
		case words[0] == "metric" && len(words) == 4 && words[2] == "histogram":
			c.metrics[words[1]] = words[3]
		case words[0] == "buckets":
			for _, word := range words[1:] {
				bucket, err := strconv.ParseFloat(word, 64)
				if err != nil {
					t.Fatal(err)
				}
				c.buckets = append(c.buckets, bucket)
			}
		case words[0] == "no-server-error":
			c.blaming = words[1:]
		default:
			t.Fatalf("what is %q?", row)
		}
	}
	return c
}

// check reports what the attributes of one signal lack, and what they have too much.
func (c *convention) check(t *testing.T, name string, of signal, has attribute.Set) {
	t.Helper()
	for _, a := range has.ToSlice() {
		key := string(a.Key)
		if strings.HasPrefix(key, "bowline.") && (of == clientSpan || of == serverSpan) {
			continue
		}
		kind := map[attribute.Type]string{attribute.STRING: "string", attribute.INT64: "int"}[a.Value.Type()]
		if want := c.types[key]; want == "" || c.levels[key][of] == "-" {
			t.Errorf("%s has %s", name, key)
		} else if want != "any" && kind != want {
			t.Errorf("%s has %s of type %s, want %s", name, key, a.Value.Type(), want)
		}
	}
	for key, levels := range c.levels {
		if levels[of] == "required" && !has.HasValue(attribute.Key(key)) {
			t.Errorf("%s has no %s", name, key)
		}
	}
	if of == clientSession || of == serverSession {
		return
	}
	method, _ := has.Value("mcp.method.name")
	for key, want := range map[attribute.Key]bool{
		"gen_ai.tool.name":      method.AsString() == protocol.MethodCallTool,
		"gen_ai.operation.name": method.AsString() == protocol.MethodCallTool,
		"gen_ai.prompt.name":    method.AsString() == protocol.MethodGetPrompt,
		"mcp.resource.uri":      method.AsString() == protocol.MethodReadResource && (of == clientSpan || of == serverSpan),
		"jsonrpc.request.id":    of == clientSpan || of == serverSpan, // no test of the convention sends none
	} {
		if has.HasValue(key) != want {
			t.Errorf("%s of %s: it is %v that it has %s", name, method.AsString(), !want, key)
		}
	}
	if failed, _ := has.Value("error.type"); has.HasValue("rpc.response.status_code") {
		code, _ := has.Value("rpc.response.status_code")
		want := code.AsString()
		if (of == serverSpan || of == serverOperation) && slices.Contains(c.blaming, want) {
			want = ""
		}
		if failed.AsString() != want {
			t.Errorf("%s has the error type %s and the code %s", name, failed.AsString(), code.AsString())
		}
	}
}

// Each name of names.go that does not begin with "bowline." is one of the convention.
//
// Guarantees: G-0047.7
func TestNamesAreThoseOfTheConvention(t *testing.T) {
	c := readConvention(t)
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if _, imported := n.(*ast.ImportSpec); imported || !ok || literal.Kind != token.STRING {
			return !imported
		}
		name, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, ".") || strings.HasPrefix(name, "bowline.") {
			return true
		}
		names++
		if c.types[name] == "" && c.metrics[name] == "" {
			t.Errorf("the convention has no %s", name)
		}
		return true
	})
	if names < 10 {
		t.Errorf("only %d names were found", names)
	}
}

// Spans and metrics have the attributes, types, units and buckets of the convention.
//
// Guarantees: G-0047.7, G-0060.2
func TestSpansAndMetricsFollowTheConvention(t *testing.T) {
	c := readConvention(t)
	for _, over := range []string{"memory", "stdio", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(over+"/"+version, func(t *testing.T) {
				s := newSite(t, over, version, otel.Options{})
				for _, tool := range []string{"add", "fail", "none"} {
					s.CallTool(t.Context(), &protocol.CallToolParams{Name: tool})
				}
				for _, prompt := range []string{"greet", "none"} {
					s.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: prompt})
				}
				for _, uri := range []string{"mem://one", "mem://none"} {
					s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri})
				}
				s.ended()
				kinds := make(map[trace.SpanKind]int)
				for _, span := range s.spans.GetSpans() {
					kinds[span.SpanKind]++
					c.checkSpan(t, span)
				}
				if kinds[trace.SpanKindClient] < 8 || kinds[trace.SpanKindServer] < 8 {
					t.Errorf("there are spans of %v", kinds)
				}
				found := s.collect(t)
				for name, unit := range c.metrics {
					metric, ok := found[name]
					switch {
					case ok:
						c.checkMetric(t, metric, unit)
						if strings.Contains(name, ".session.") {
							checkSession(t, metric, over, version)
						}
					case over != "stdio" || !strings.Contains(s.logs.String(), `"Name":"`+name+`"`): // in what the child tells
						t.Errorf("there is no %s", name)
					}
				}
			})
		}
	}
}

// checkSession reports what is wrong with the sessions of a site, of which each metric of
// sessions has one: the revision that was spoken, the protocol below, and the server's address.
func checkSession(t *testing.T, metric metricdata.Metrics, over, version string) {
	t.Helper()
	points := metric.Data.(metricdata.Histogram[float64]).DataPoints
	if len(points) != 1 {
		t.Errorf("%s has %d sets of attributes", metric.Name, len(points))
	}
	for _, p := range points {
		if spoken, _ := p.Attributes.Value("mcp.protocol.version"); spoken.AsString() != version {
			t.Errorf("%s is of the revision %q, want %q", metric.Name, spoken.AsString(), version)
		}
		if below, _ := p.Attributes.Value("network.protocol.name"); (below.AsString() == "http") != (over == "http") {
			t.Errorf("%s was over %q, want %s", metric.Name, below.AsString(), over)
		}
		address, _ := p.Attributes.Value("server.address")
		if port, _ := p.Attributes.Value("server.port"); metric.Name == "mcp.client.session.duration" && over == "http" &&
			(address.AsString() != "127.0.0.1" || port.AsInt64() == 0) {
			t.Errorf("%s was with %q, port %d", metric.Name, address.AsString(), port.AsInt64())
		}
	}
}

// A program may have finer buckets, in front of the convention's.
func TestFineBuckets(t *testing.T) {
	c := readConvention(t)
	s := newSite(t, "memory", protocol.Latest, otel.Options{FineBuckets: true})
	if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add"}); err != nil {
		t.Fatal(err)
	}
	all := s.collect(t)
	for _, name := range []string{"mcp.client.operation.duration", "bowline.call.attempt.duration"} {
		for _, p := range all[name].Data.(metricdata.Histogram[float64]).DataPoints {
			finer := len(p.Bounds) - len(c.buckets)
			if finer != 6 || p.Bounds[0] != 0.0001 || !slices.IsSorted(p.Bounds) || !slices.Equal(p.Bounds[finer:], c.buckets) {
				t.Errorf("%s has the buckets %v", name, p.Bounds)
			}
		}
	}
}

func (c *convention) checkSpan(t *testing.T, span tracetest.SpanStub) {
	t.Helper()
	of := clientSpan
	if span.SpanKind == trace.SpanKindServer {
		of = serverSpan
	}
	has := attribute.NewSet(span.Attributes...)
	c.check(t, "the span "+span.Name, of, has)
	if failed := has.HasValue("error.type"); failed != (span.Status.Code != 0) {
		t.Errorf("the span %s has the status %v and the attributes %v", span.Name, span.Status, has.ToSlice())
	}
}

func (c *convention) checkMetric(t *testing.T, metric metricdata.Metrics, unit string) {
	t.Helper()
	if metric.Unit != unit {
		t.Errorf("%s is in %q", metric.Name, metric.Unit)
	}
	of := map[string]signal{
		"mcp.client.operation.duration": clientOperation, "mcp.server.operation.duration": serverOperation,
		"mcp.client.session.duration": clientSession, "mcp.server.session.duration": serverSession,
	}[metric.Name]
	histogram, ok := metric.Data.(metricdata.Histogram[float64])
	if !ok || len(histogram.DataPoints) == 0 {
		t.Errorf("%s has the data %+v", metric.Name, metric.Data)
	}
	for _, point := range histogram.DataPoints {
		if !slices.Equal(point.Bounds, c.buckets) {
			t.Errorf("%s has the buckets %v", metric.Name, point.Bounds)
		}
		c.check(t, metric.Name, of, point.Attributes)
	}
}
