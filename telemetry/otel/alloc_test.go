//go:build !race

package otel_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
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

// BenchmarkCollect is one collection of so many connections that are ready, over memory, each
// with calls behind it.
func BenchmarkCollect(b *testing.B) {
	for _, connections := range []int{1, 200, 10_000} {
		b.Run(strconv.Itoa(connections), func(b *testing.B) {
			peer := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
			defer peer.Close(context.Background())
			server.AddTool(peer, protocol.Tool{Name: "add"}, func(context.Context, struct{}) (string, error) { return "", nil })
			reader := metric.NewManualReader()
			told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
			if err != nil {
				b.Fatal(err)
			}
			c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{})
			defer c.Close(context.Background())
			defer told.Watch(c.Samples)()
			for range connections {
				session, err := c.Connect(b.Context(), inmem.New(peer.Accept, inmem.Options{}))
				if err == nil {
					_, err = session.CallTool(b.Context(), &protocol.CallToolParams{Name: "add"})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			var all metricdata.ResourceMetrics
			b.ReportAllocs()
			for b.Loop() {
				if err := reader.Collect(b.Context(), &all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
