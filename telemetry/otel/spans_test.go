package otel_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a client and a server with all of their telemetry.
type site struct {
	*client.Session
	client  *client.Client
	server  *server.Server
	spans   *tracetest.InMemoryExporter
	reader  *metric.ManualReader
	ran     chan struct{} // takes one when a handler begins to wait
	crashes atomic.Int32  // how often the tool "crash" still loses its link
}

type arguments struct {
	Secret string `json:"secret,omitempty"`
}

func newSite(t *testing.T, over, version string) *site {
	t.Helper()
	s := &site{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader(), ran: make(chan struct{}, 1)}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	meters := metric.NewMeterProvider(metric.WithReader(s.reader))
	told, err := otel.New(otel.Options{TracerProvider: traces, MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	quiet := conn.Options{Hooks: told.ServerHooks()}
	s.server = server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Conn: quiet, Middleware: []server.Middleware{told.Server()}})
	s.addTools()
	var to transport.Transport = inmem.New(s.server.Accept, inmem.Options{})
	if over == "http" {
		endpoint := streamable.NewHandler(s.server, streamable.HandlerOptions{})
		listener := httptest.NewServer(endpoint)
		t.Cleanup(func() { endpoint.Close(0); listener.Close() })
		to = &streamable.Client{URL: listener.URL}
	}
	s.client = client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: version, Middleware: []client.Middleware{told.Client()},
		Conn: conn.Options{Name: "weather", Hooks: told.Hooks(), BackoffMin: time.Millisecond},
	})
	forget := told.Watch(s.client.Samples)
	t.Cleanup(func() {
		forget()
		s.client.Close(context.Background())
		s.server.Close(context.Background())
	})
	if s.Session, err = s.client.Connect(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.spans.Reset()
	return s
}

func (s *site) addTools() {
	server.AddTool(s.server, protocol.Tool{Name: "add"}, func(context.Context, arguments) (string, error) { return "3", nil })
	server.AddTool(s.server, protocol.Tool{Name: "fail"}, func(context.Context, arguments) (string, error) { return "", errors.New("no") })
	server.AddTool(s.server, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ arguments) (string, error) {
		s.ran <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	server.AddTool(s.server, protocol.Tool{Name: "crash"}, func(ctx context.Context, _ arguments) (string, error) {
		if s.crashes.Add(-1) >= 0 {
			server.RequestFrom(ctx).Conn().Stop()
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "back", nil
	})
}

// of returns the spans of one kind, once there are that many.
func (s *site) of(t *testing.T, kind trace.SpanKind, want int) (found tracetest.SpanStubs) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		found = nil
		for _, span := range s.spans.GetSpans() {
			if span.SpanKind == kind && strings.HasPrefix(span.Name, "tools/call ") { // the handshake passes no middleware of clients
				found = append(found, span)
			}
		}
		if len(found) >= want || time.Now().After(deadline) {
			tick.Stop()
			return found
		}
	}
}

func attributeOf(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.Emit()
		}
	}
	return ""
}

// Whatever becomes of a call, it is one CLIENT span, and one SERVER span for each
// attempt that was served, in one trace.
func TestSpansOfACall(t *testing.T) {
	for _, over := range []string{"memory", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			for _, test := range []struct {
				name, tool      string
				client, server  string // error.type
				status          codes.Code
				served, crashes int
				timeout         time.Duration
				cancels         bool
				epoch           uint64
			}{
				{name: "answered", tool: "add", served: 1},
				{name: "peer error", tool: "none", client: "-32602", server: "-32602", served: 1},
				{name: "isError", tool: "fail", client: "tool_error", server: "tool_error", served: 1},
				{name: "timeout", tool: "hang", client: "timeout", server: "cancelled", served: 1, timeout: 20 * time.Millisecond},
				{name: "cancel", tool: "hang", client: "cancelled", server: "cancelled", served: 1, cancels: true},
				{name: "lost and retried", tool: "crash", server: "link_lost", served: 2, crashes: 1},
				{name: "refused", tool: "add", client: "refused", epoch: 99},
			} {
				t.Run(over+"/"+version+"/"+test.name, func(t *testing.T) {
					if test.crashes > 0 && over == "http" {
						return // a server that stops its Conn ends no session of HTTP: the rows in memory hold this
					}
					s := newSite(t, over, version)
					s.crashes.Store(int32(test.crashes))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if test.cancels {
						go func() { <-s.ran; cancel() }()
					}
					view := s.With(client.CallOptions{Timeout: test.timeout, Retries: 3, Repeatable: true, Epoch: test.epoch})
					view.CallTool(ctx, &protocol.CallToolParams{Name: test.tool, Arguments: []byte(`{"secret":"s3cr3t"}`)})
					calls, served := s.of(t, trace.SpanKindClient, 1), s.of(t, trace.SpanKindServer, test.served)
					if len(calls) != 1 || len(served) != test.served {
						t.Fatalf("%d CLIENT and %d SERVER spans", len(calls), len(served))
					}
					call := calls[0]
					if got := attributeOf(call, "error.type"); got != test.client || call.Name != "tools/call "+test.tool {
						t.Errorf("CLIENT span %q has error.type %q, want %q", call.Name, got, test.client)
					}
					if failed := call.Status.Code == codes.Error; failed != (test.client != "") {
						t.Errorf("status %+v", call.Status)
					}
					if len(call.Events) != test.crashes {
						t.Errorf("%d retries", len(call.Events))
					}
					for i, span := range served {
						if span.Parent.SpanID() != call.SpanContext.SpanID() || span.SpanContext.TraceID() != call.SpanContext.TraceID() || !span.Parent.IsRemote() {
							t.Errorf("SERVER span %d has the parent %v", i, span.Parent)
						}
						want := test.server
						if i > 0 {
							want = ""
						}
						if got := attributeOf(span, "error.type"); got != want {
							t.Errorf("SERVER span %d has error.type %q, want %q", i, got, want)
						}
						if got := attributeOf(span, "mcp.protocol.version"); got != version {
							t.Errorf("SERVER span %d has the revision %q", i, got)
						}
					}
					s.wantNoSecret(t)
				})
			}
		}
	}
}

// wantNoSecret fails if an argument is in a span or a metric.
func (s *site) wantNoSecret(t *testing.T) {
	t.Helper()
	for _, span := range s.spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Value.Emit() == "s3cr3t" || a.Key == "gen_ai.tool.call.arguments" {
				t.Errorf("%s tells %s", span.Name, a.Key)
			}
		}
	}
}

func (s *site) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// Metrics agree with the books, at any time, and histograms with what was called.
// Names that no server has listed are not counted by.
func TestMetricsAgreeWithTheBooks(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest)
	const calls = 50
	for i := range calls {
		name := "add"
		if i%5 == 0 {
			name = "in\nvented" + string(rune('a'+i))
		}
		s.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
	}
	all := s.collect(t)
	var settled, inFlight float64
	for _, p := range all["bowline.calls"].Data.(metricdata.Sum[float64]).DataPoints {
		settled += p.Value
	}
	for _, p := range all["bowline.calls.in_flight"].Data.(metricdata.Gauge[float64]).DataPoints {
		inFlight += p.Value
	}
	if made := float64(s.Conn().Stats().Calls); settled+inFlight != made {
		t.Errorf("%v calls have ended and %v are in flight, of %v", settled, inFlight, made)
	}
	for _, name := range []string{"mcp.client.operation.duration", "mcp.server.operation.duration"} {
		count, byTool := uint64(0), make(map[string]uint64)
		for _, p := range all[name].Data.(metricdata.Histogram[float64]).DataPoints {
			method, _ := p.Attributes.Value("mcp.method.name")
			if method.AsString() == "tools/call" {
				tool, _ := p.Attributes.Value("gen_ai.tool.name")
				byTool[tool.AsString()] += p.Count
				count += p.Count
			}
		}
		if count != calls || byTool["add"] != calls*4/5 || byTool["_OTHER"] != calls/5 || len(byTool) != 2 {
			t.Errorf("%s counts %d: %v", name, count, byTool)
		}
	}
}

// A trace context that is malformed is ignored and counted, and the span is a new root.
func TestMalformedTracesAreIgnored(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest)
	for _, bad := range []string{`"00-00000000000000000000000000000000-0000000000000000-01"`, `"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `7`, `"x"`} {
		s.spans.Reset()
		_, err := s.CallTool(t.Context(), &protocol.CallToolParams{
			RequestParams: protocol.RequestParams{Meta: protocol.Meta{"traceparent": []byte(bad)}}, Name: "add"})
		if err != nil {
			t.Fatal(err)
		}
		if served := s.of(t, trace.SpanKindServer, 1); len(served) != 1 || served[0].Parent.IsValid() {
			t.Errorf("%s: the parent is %v", bad, served)
		}
	}
	refused := s.collect(t)["bowline.debug.trace.refused"].Data.(metricdata.Sum[int64]).DataPoints
	if len(refused) != 1 || refused[0].Value != 4 {
		t.Errorf("counted %+v", refused)
	}
}
