package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A collector takes spans by OTLP over HTTP, and reads them.
type collector struct {
	*httptest.Server

	mu       sync.Mutex
	requests map[string]int       // by path, content type and tenant
	spans    map[string][]*spanOf // by name
	text     strings.Builder      // all that came
}

// A spanOf is a span, and the resource that sent it.
type spanOf struct {
	*tracepb.Span
	service, environment string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{requests: map[string]int{}, spans: map[string][]*spanOf{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := c.take(r, body); err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer, err := proto.Marshal(&tracecollector.ExportTraceServiceResponse{})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		if _, err := w.Write(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(r *http.Request, body []byte) error {
	var request tracecollector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[r.URL.Path+" "+r.Header.Get("Content-Type")+" "+r.Header.Get("X-Tenant")]++
	c.text.Write(body)
	for _, from := range request.ResourceSpans {
		about := textAttributes(from.Resource.Attributes)
		for _, scope := range from.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = append(c.spans[span.Name], &spanOf{span, about["service.name"], about["deployment.environment"]})
			}
		}
	}
	return nil
}

func textAttributes(all []*commonpb.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range all {
		texts[a.Key] = a.Value.GetStringValue()
	}
	return texts
}

// TestTracesAreSent checks that the spans of a client in this process and of the server, as its
// child, are sent by OTLP. They contain no argument, token or query.
func TestTracesAreSent(t *testing.T) {
	got := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	url, interrupt, _, ended := serving(t, "--otlp")
	exporter, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.Empty()))
	sink, err := otel.New(otel.Options{TracerProvider: traces})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Middleware: []client.Middleware{sink.Client()}})
	session, err := c.Connect(t.Context(), &streamable.Client{URL: url + "?key=s3cret", Header: http.Header{"Authorization": {"Bearer s3cret"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "fail", Arguments: []byte(`{"message":"s3cret"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(context.Context) error{c.Close, traces.Shutdown} {
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
	}
	interrupt()
	if status, rest := ended(); status != 0 || rest != "" {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.requests) != 1 || got.requests["/v1/traces application/x-protobuf blue"] < 2 {
		t.Errorf("the collector got %v", got.requests)
	}
	calls := got.spans["tools/call fail"]
	if len(calls) != 2 {
		t.Fatalf("the collector has the spans %v", got.spans)
	}
	asked, served := calls[0], calls[1]
	if asked.Kind != tracepb.Span_SPAN_KIND_CLIENT || served.Kind != tracepb.Span_SPAN_KIND_SERVER || served.service != "bowline" || served.environment != "test" {
		t.Errorf("the spans are %v and %v", asked, served)
	}
	if !bytes.Equal(asked.TraceId, served.TraceId) || !bytes.Equal(asked.SpanId, served.ParentSpanId) {
		t.Errorf("%v is not a child of %v", served, asked)
	}
	for _, span := range calls {
		if has := textAttributes(span.Attributes); has["error.type"] != "tool_error" || has["gen_ai.tool.name"] != "fail" || span.Status.Code != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("the span %v", span)
		}
	}
	if strings.Contains(got.text.String(), "s3cret") {
		t.Error("an argument was sent")
	}
}

func TestTracesThatCannotBeSent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.URL)
	url, interrupt, _, ended := serving(t, "--otlp")
	if said, err := bowline(t, "call", "echo", "message=hello", "--url", url).Output(); err != nil || string(said) != "hello\n" {
		t.Errorf("the call has printed %q: %v", said, err)
	}
	interrupt()
	if status, rest := ended(); status != 0 || !strings.Contains(rest, "traces") {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

func TestOTLPOverGRPCIsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	said, err := bowline(t, "serve", "--stdio", "--otlp").CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(said), "OTEL_EXPORTER_OTLP_PROTOCOL") {
		t.Errorf("%v: %s", err, said)
	}
}
