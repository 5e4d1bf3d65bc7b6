package otel_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// of returns the spans of one kind in the order they began, once there are that many.
func (s *site) of(t *testing.T, kind trace.SpanKind, want int) (found tracetest.SpanStubs) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		found = nil
		for _, span := range s.spans.GetSpans() {
			if span.SpanKind == kind && strings.HasPrefix(span.Name, "tools/call ") { // the handshake passes no middleware of clients
				found = append(found, span)
			}
		}
		if len(found) >= want || time.Now().After(deadline) {
			tick.Stop()
			// A span comes when it ends: what a lost attempt ran may end after the next attempt.
			slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
			return found
		}
	}
}

func attributeOf(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// Whatever becomes of a call, it is one CLIENT span, and one SERVER span for each
// attempt that was served, in one trace.
//
// Guarantees: G-0047.2, G-0047.6
func TestSpansOfACall(t *testing.T) {
	for _, over := range []string{"memory", "stdio", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			for _, test := range []struct {
				name, tool     string
				client, server string // error.type
				code           string // that both spans have
				served         int
				timeout        time.Duration
				cancels        bool
				crashes        bool
				epoch          uint64
			}{
				{name: "answered", tool: "add", served: 1},
				{name: "peer error", tool: "none", client: "-32602", code: "-32602", served: 1},
				{name: "isError", tool: "fail", client: "tool_error", server: "tool_error", served: 1},
				{name: "timeout", tool: "hang", client: "timeout", server: "cancelled", served: 1, timeout: time.Second},
				{name: "cancel", tool: "hang", client: "cancelled", server: "cancelled", served: 1, cancels: true},
				{name: "lost and retried", tool: "crash", server: "link_lost", served: 2, crashes: true},
				{name: "refused", tool: "add", client: "refused", epoch: 99},
			} {
				t.Run(over+"/"+version+"/"+test.name, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, over, version, otel.Options{})
					s.spans.Reset()
					leastRetries, mostRetries := 0, 0
					if test.crashes {
						leastRetries, mostRetries = 1, 1
						s.arm()
						if over == "http" && version == protocol.Latest { // a connection that closes is how calls are cancelled
							test.server = "cancelled"
						}
						if over == "http" { // the next attempt may meet the server that does not know the session
							mostRetries = 2
						}
						if over == "stdio" { // the span of the first attempt ended with its process
							test.served, test.server = 1, ""
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if test.cancels {
						go func() { <-s.ran; cancel() }()
					}
					view := s.With(client.CallOptions{Timeout: test.timeout, Retries: 3, Repeatable: true, Epoch: test.epoch})
					view.CallTool(ctx, &protocol.CallToolParams{Name: test.tool, Arguments: []byte(`{"secret":"` + secret + `-argument"}`)})
					s.of(t, trace.SpanKindServer, test.served)
					for _, told := range s.secrets(t) {
						t.Errorf("a secret is told: ...%s...", told)
					}
					calls, served := s.of(t, trace.SpanKindClient, 1), s.of(t, trace.SpanKindServer, test.served)
					if len(calls) != 1 || len(served) != test.served {
						t.Fatalf("%d CLIENT and %d SERVER spans", len(calls), len(served))
					}
					call := calls[0]
					if got := attributeOf(call, "error.type"); got != test.client || call.Name != "tools/call "+test.tool {
						t.Errorf("CLIENT span %q has error.type %q, want %q", call.Name, got, test.client)
					}
					if got := attributeOf(call, "rpc.response.status_code"); got != test.code {
						t.Errorf("the CLIENT span has the code %q, want %q", got, test.code)
					}
					if failed := call.Status.Code == codes.Error; failed != (test.client != "") {
						t.Errorf("status %+v", call.Status)
					}
					if len(call.Events) < leastRetries || len(call.Events) > mostRetries {
						t.Errorf("%d retries", len(call.Events))
					}
					for _, event := range call.Events {
						if cause := attribute.NewSet(event.Attributes...); !cause.HasValue("bowline.delivery") || event.Name != "retry" {
							t.Errorf("the event %+v", event)
						}
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
						if failed := span.Status.Code == codes.Error; failed != (want != "") {
							t.Errorf("SERVER span %d has the status %+v", i, span.Status)
						}
						if got := attributeOf(span, "rpc.response.status_code"); got != test.code {
							t.Errorf("SERVER span %d has the code %q, want %q", i, got, test.code)
						}
						if got := attributeOf(span, "mcp.protocol.version"); got != version {
							t.Errorf("SERVER span %d has the revision %q", i, got)
						}
					}
				})
			}
		}
	}
}

// Metrics agree with the books, at any time, and histograms with what was called.
// Names that no server has listed are not counted by.
//
// Guarantees: G-0047.3, G-0047.8
func TestMetricsAgreeWithTheBooks(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest, otel.Options{})
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
