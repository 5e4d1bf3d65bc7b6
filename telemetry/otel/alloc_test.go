//go:build !race

package otel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

func meteredHooks(tb testing.TB) telemetry.Hooks {
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
	if err != nil {
		tb.Fatal(err)
	}
	return told.Hooks()
}

// measure is what the hooks of one call and of its service do.
func measure(ctx context.Context, h telemetry.Hooks) {
	h.RequestStopped(ctx, telemetry.RequestStopped{Conn: "c", Method: "tools/call", Cause: "answered", Last: time.Millisecond})
	h.ServeStopped(ctx, telemetry.ServeStopped{Conn: "c", Method: "tools/call", Queued: time.Millisecond})
}

// The hooks of a call cost no allocation. The race detector allocates too.
//
// Guarantees: G-0047.5
func TestMetricsAllocateNothing(t *testing.T) {
	h := meteredHooks(t)
	if allocated := testing.AllocsPerRun(1000, func() { measure(t.Context(), h) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func BenchmarkHooks(b *testing.B) {
	h := meteredHooks(b)
	b.ReportAllocs()
	for b.Loop() {
		measure(b.Context(), h)
	}
}
