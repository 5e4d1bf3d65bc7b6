//go:build !race

package otel_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

func heap() int64 {
	var m runtime.MemStats
	for range 2 { // the second frees what the first has only found
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What telemetry keeps of a connection, with the series of OpenTelemetry's SDK, stays below
// what docs/observability says: much for each of the first 200, which have series of their own,
// and little for the others.
//
// Guarantees: G-0060.5
func TestMemoryOfAConnection(t *testing.T) {
	testenv.Crowd(t)
	const own, others = 200, 3000
	names := make([]string, own+others)
	for i := range names {
		names[i] = fmt.Sprint("server ", i)
	}
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	present := 0
	defer told.Watch(func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			for _, name := range names[:present] {
				made := new(struct { // as that of a Conn
					telemetry.ConnSample
					settled [2]telemetry.Settled
				})
				made.State = "ready"
				made.Settled = append(made.settled[:0], telemetry.Settled{Cause: "answered", Delivery: "sent", Count: 1})
				if !yield(telemetry.Sample{Name: name, Conn: &made.ConnSample}) {
					return
				}
			}
		}
	})()
	hooks := told.Hooks()
	connect := func(count int) int64 {
		for _, name := range names[present : present+count] {
			hooks.Transition(telemetry.Transition{Conn: name, From: "initializing", To: "ready"})
		}
		present += count
		for range 2 {
			var all metricdata.ResourceMetrics // the reader's, which takes as much again
			if err := reader.Collect(context.Background(), &all); err != nil {
				t.Fatal(err)
			}
		}
		return heap()
	}
	before := connect(0)
	for _, kind := range []struct {
		name        string
		count, most int64
	}{{"with series of its own", own, 6 << 10}, {"of the others", others, 1 << 10}} {
		after := connect(int(kind.count))
		each := (after - before) / kind.count
		t.Logf("a connection %s takes %d bytes", kind.name, each)
		if each > kind.most || each <= 0 {
			t.Errorf("a connection %s takes %d bytes, of %d at most", kind.name, each, kind.most)
		}
		before = after
	}
	runtime.KeepAlive(names)
}
