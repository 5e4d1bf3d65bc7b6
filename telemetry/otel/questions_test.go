package otel_test

import (
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// named returns the spans of one kind and name.
func (s *site) named(kind trace.SpanKind, name string) (found tracetest.SpanStubs) {
	for _, span := range s.spans.GetSpans() {
		if span.SpanKind == kind && span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// A question of the server's is a CLIENT span of the server below the span of the call
// that asks, and a SERVER span of the client below that. In 2026-07-28 the answer of a
// call asks: there is no request, and its SERVER span is below the CLIENT span of the
// call.
//
// Guarantees: G-0047.2
func TestSpansOfQuestions(t *testing.T) {
	for _, over := range []string{"memory", "stdio", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(over+"/"+version, func(t *testing.T) {
				s := newSite(t, over, version, otel.Options{})
				s.spans.Reset()
				if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "ask"}); err != nil {
					t.Fatal(err)
				}
				for _, told := range s.secrets(t) {
					t.Errorf("a secret is told: ...%s...", told)
				}
				calls, served := s.named(trace.SpanKindClient, "tools/call ask"), s.named(trace.SpanKindServer, "tools/call ask")
				if len(calls) != 1 || len(served) == 0 {
					t.Fatalf("%d CLIENT and %d SERVER spans of the call", len(calls), len(served))
				}
				for _, method := range []string{protocol.MethodListRoots, protocol.MethodCreateMessage, protocol.MethodElicit} {
					asked, answered := s.named(trace.SpanKindClient, method), s.named(trace.SpanKindServer, method)
					above := calls[0].SpanContext
					if version != protocol.Latest {
						if len(asked) != 1 || asked[0].Parent.SpanID() != served[0].SpanContext.SpanID() {
							t.Fatalf("the CLIENT spans of %s are %v", method, asked)
						}
						above = asked[0].SpanContext
					} else if len(asked) != 0 {
						t.Errorf("%s is a request", method)
					}
					if len(answered) != 1 || answered[0].Parent.SpanID() != above.SpanID() || answered[0].SpanContext.TraceID() != calls[0].SpanContext.TraceID() {
						t.Fatalf("the SERVER spans of %s are %v", method, answered)
					}
					id := ""
					if len(asked) == 1 {
						id = attributeOf(asked[0], "jsonrpc.request.id")
					}
					if got := attributeOf(answered[0], "jsonrpc.request.id"); got != id || (id == "") != (version == protocol.Latest) {
						t.Errorf("%s was asked with the id %q, and answered with %q", method, id, got)
					}
				}
			})
		}
	}
}

// A form that the program fails to show is dismissed: its span has failed, and has no code, since
// none was sent.
//
// Guarantees: G-0047.2
func TestASpanHasTheCodeThatWasSent(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		s := newSite(t, "memory", version, otel.Options{})
		s.spans.Reset()
		if called, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "ask_in_vain"}); err == nil && !called.IsError {
			t.Errorf("%s: somebody has answered", version)
		}
		s.ended()
		answered := s.named(trace.SpanKindServer, protocol.MethodElicit)
		if len(answered) != 1 {
			t.Fatalf("%s: %d SERVER spans", version, len(answered))
		}
		if kind, code := attributeOf(answered[0], "error.type"), attributeOf(answered[0], "rpc.response.status_code"); kind != "_OTHER" || code != "" {
			t.Errorf("%s: error.type %q with the code %q", version, kind, code)
		}
		for _, asked := range s.named(trace.SpanKindClient, protocol.MethodElicit) {
			if kind := attributeOf(asked, "error.type"); kind != "" {
				t.Errorf("%s: the question has failed with %q, and it was answered", version, kind)
			}
		}
	}
}

// Spans say which way a call went: over a pipe, or over HTTP with the addresses of both
// ends, and the beginning of the session's id. Metrics have the address of the server.
//
// Guarantees: G-0047.7, G-0061.2
func TestSpansSayWhichWayACallWent(t *testing.T) {
	for _, over := range []string{"memory", "stdio", "http", "http2"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(over+"/"+version, func(t *testing.T) {
				s := newSite(t, over, version, otel.Options{})
				if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add"}); err != nil {
					t.Fatal(err)
				}
				endpoint, err := url.Parse(s.Endpoint())
				if err != nil {
					t.Fatal(err)
				}
				s.ended()
				want := map[attribute.Key]string{"network.transport": "pipe"}
				fromAddress := ""
				if strings.HasPrefix(over, "http") {
					fromAddress = "127.0.0.1"
					want = map[attribute.Key]string{
						"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": map[bool]string{true: "2", false: "1.1"}[over == "http2"],
						"server.address": endpoint.Hostname(), "server.port": endpoint.Port(),
					}
				}
				call, served := s.named(trace.SpanKindClient, "tools/call add")[0], s.named(trace.SpanKindServer, "tools/call add")[0]
				for _, key := range []attribute.Key{"network.transport", "network.protocol.name", "network.protocol.version", "server.address", "server.port"} {
					if got := attributeOf(call, string(key)); got != want[key] {
						t.Errorf("the CLIENT span has the %s %q, want %q", key, got, want[key])
					}
					if strings.HasPrefix(string(key), "server.") {
						continue
					}
					if got := attributeOf(served, string(key)); got != want[key] {
						t.Errorf("the SERVER span has the %s %q, want %q", key, got, want[key])
					}
				}
				if got := attributeOf(served, "client.address"); got != fromAddress || (attributeOf(served, "client.port") == "") != (fromAddress == "") {
					t.Errorf("the SERVER span comes from %q, want %q", got, fromAddress)
				}
				session := ""
				s.sessions.Range(func(whole, _ any) bool { session = whole.(string)[:8]; return false })
				if (session != "") != (strings.HasPrefix(over, "http") && version != protocol.Latest) {
					t.Errorf("the session %q", session)
				}
				for side, span := range map[string]tracetest.SpanStub{"CLIENT": call, "SERVER": served} {
					if id := attributeOf(span, "mcp.session.id"); id != session {
						t.Errorf("the %s span has the session %q, want %q", side, id, session)
					}
				}
				for key, text := range map[string]string{"bowline.epoch": "1", "bowline.attempts": "1", "bowline.delivery": "sent"} {
					if got := attributeOf(call, key); got != text {
						t.Errorf("the CLIENT span has the %s %q, want %q", key, got, text)
					}
				}
				for _, name := range []string{"mcp.client.operation.duration", "mcp.server.operation.duration"} {
					measured, _ := s.collect(t)[name].Data.(metricdata.Histogram[float64]) // a child tells its own
					for _, p := range measured.DataPoints {
						for key, text := range want {
							got, has := p.Attributes.Value(key)
							if has != !strings.Contains(name+string(key), "server.operation.durationserver.") || has && got.String() != text {
								t.Errorf("%s has the %s %q, want %q", name, key, got.String(), text)
							}
						}
					}
				}
			})
		}
	}
}
