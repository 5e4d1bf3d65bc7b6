package otel_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/telemetry/sloglog"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// One call records the spans and metrics of a client, and one those of a server. The hooks
// and the middleware that were there before stay, and the middleware is within the spans.
func TestInstrument(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	told, err := otel.New(otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var stopped, within int
	var clientOptions client.Options
	clientOptions.ProtocolVersion = protocol.LatestLegacy
	clientOptions.Conn.Hooks.RequestStopped = func(context.Context, telemetry.RequestStopped) { stopped++ }
	clientOptions.Middleware = []client.Middleware{func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			if r.Method == protocol.MethodListTools && trace.SpanFromContext(ctx).IsRecording() {
				within++
			}
			return next(ctx, r)
		}
	}}
	given := clientOptions.Middleware
	told.Instrument(&clientOptions)
	var serverOptions server.Options
	told.InstrumentServer(&serverOptions)
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, serverOptions)
	defer s.Close(context.Background())
	server.AddTool(s, protocol.Tool{Name: "add"}, func(context.Context, struct{}) (string, error) { return "", nil })
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, clientOptions)
	session, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	kinds := make(map[trace.SpanKind]int)
	for _, span := range spans.GetSpans() {
		if span.Name == protocol.MethodListTools {
			kinds[span.SpanKind]++
		}
	}
	if kinds[trace.SpanKindClient] != 1 || kinds[trace.SpanKindServer] != 1 {
		t.Errorf("spans of %v", kinds)
	}
	found := (&site{reader: reader}).collect(t)
	for _, name := range []string{"mcp.client.operation.duration", "mcp.server.operation.duration", "bowline.call.attempt.duration", "bowline.serve.queue.duration"} {
		if _, ok := found[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	if stopped == 0 || within != 1 || len(given) != 1 || len(clientOptions.Middleware) != 2 {
		t.Errorf("the own hook ran %d times, the own middleware %d times within a span, of %d", stopped, within, len(clientOptions.Middleware))
	}
}

// Metrics do not take the place of the log: a panic has its stack there. Hooks that log do.
//
// Guarantees: G-0047.10
func TestInstrumentedPartsStillLog(t *testing.T) {
	before, log := slog.Default(), new(lockedBuffer)
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	var serverOptions server.Options
	told.InstrumentServer(&serverOptions)
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, serverOptions)
	defer s.Close(context.Background())
	server.AddTool(s, protocol.Tool{Name: "panics"}, func(context.Context, struct{}) (string, error) { panic("of the tool") })
	var clientOptions client.Options
	told.Instrument(&clientOptions)
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, clientOptions)
	defer c.Close(context.Background())
	session, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "panics"}); err == nil {
		t.Error("the call did not fail")
	}
	if text := log.String(); !strings.Contains(text, "of the tool") || !strings.Contains(text, "stack=") {
		t.Errorf("the log is %q", text)
	}
	own := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		options conn.Tuning
		want    *slog.Logger
	}{
		"hooks that log":    {conn.Tuning{Hooks: sloglog.Hooks(own)}, nil},
		"hooks for a part":  {conn.Tuning{Hooks: telemetry.Hooks{Panic: func(telemetry.Panic) {}}}, slog.Default()},
		"the program's log": {conn.Tuning{Log: own}, own},
		"no hooks, no log":  {conn.Tuning{}, slog.Default()},
	} {
		forClient, forServer := client.Options{Conn: test.options}, server.Options{Conn: test.options}
		told.Instrument(&forClient)
		told.InstrumentServer(&forServer)
		if forClient.Conn.Log != test.want || forServer.Conn.Log != test.want {
			t.Errorf("%s: %v and %v, want %v", name, forClient.Conn.Log, forServer.Conn.Log, test.want)
		}
	}
}

// Frames that are no valid messages are counted by reason.
//
// Guarantees: G-0024.11
func TestViolationsAreCountedByReason(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	hooks := told.Hooks()
	for _, reason := range []telemetry.ViolationReason{telemetry.ViolationNotJSON, telemetry.ViolationBatch, telemetry.ViolationNotJSON} {
		hooks.Violation(telemetry.Violation{Conn: "a", Reason: reason})
	}
	sum, ok := (&site{reader: reader}).collect(t)["bowline.violations"].Data.(metricdata.Sum[int64])
	if !ok {
		t.Fatal("there is no bowline.violations")
	}
	got := make(map[string]int64)
	for _, point := range sum.DataPoints {
		reason, _ := point.Attributes.Value("bowline.reason")
		got[reason.AsString()] = point.Value
	}
	if len(got) != 2 || got["not JSON"] != 2 || got["batch"] != 1 {
		t.Errorf("got %v, want 2 that are not JSON and 1 batch", got)
	}
}
