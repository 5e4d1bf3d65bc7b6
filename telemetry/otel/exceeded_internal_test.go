package otel

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Beyond 1,000 sets of attributes of an instrument, each measurement that becomes "_OTHER" is counted,
// of events as of operations, whether their set was looked up or kept.
//
// Guarantees: G-0047.8
func TestMeasurementsBeyondTheSetsAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := New(Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	want := func(exceeded int64, others float64, of string) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var counted int64
		var found float64
		for _, m := range all.ScopeMetrics[0].Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if m.Name == "bowline.debug.sets.exceeded" {
						counted += p.Value
					}
					if conn, _ := p.Attributes.Value(keyConn); m.Name == of && conn.AsString() == other {
						found += float64(p.Value)
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if tool, _ := p.Attributes.Value(keyTool); m.Name == of && tool.AsString() == other {
						found += float64(p.Count)
					}
				}
			}
		}
		if counted != exceeded || found != others {
			t.Errorf("%d measurements are counted, and %s has %v of others, want %d and %v", counted, of, found, exceeded, others)
		}
	}
	hooks := told.Hooks()
	connect := func(name string) {
		hooks.Transition(telemetry.Transition{Conn: name, From: "initializing", To: "ready"})
	}
	for i := range maxSets {
		connect(fmt.Sprint(i))
	}
	connect("0")
	want(0, 0, "bowline.conn.attempts")
	connect("beyond")
	connect("beyond")
	connect("another")
	connect("0")
	want(3, 3, "bowline.conn.attempts")

	call := func(tool string, f failure) {
		op := operation{method: protocol.MethodCallTool, tool: tool, network: overPipe}
		by := told.patternOf(&op, "c", trace.SpanKindClient)
		told.metrics.record(t.Context(), told.metrics.clientDuration, &op, by, f, true, time.Second)
	}
	call("kept", internalError) // so that there is a pattern, and no set for it
	for i := range maxSets - 1 {
		call(fmt.Sprint(i), failure{kind: "timeout"})
	}
	want(3, 0, clientDuration)
	for range 3 {
		call("kept", failure{})
	}
	call("kept", failure{kind: "timeout"})
	call("kept", internalError) // has its own
	want(7, 4, clientDuration)
}
