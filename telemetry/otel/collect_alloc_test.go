//go:build !race

package otel_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// collecting is how much one collection allocates.
func collecting(t *testing.T, reader *metric.ManualReader, all *metricdata.ResourceMetrics) float64 {
	t.Helper()
	return testing.AllocsPerRun(10, func() {
		if err := reader.Collect(context.Background(), all); err != nil {
			t.Fatal(err)
		}
	})
}

// One collection allocates what OpenTelemetry's SDK does for so many values, and next to
// nothing for each connection. The race detector allocates too.
//
// Guarantees: G-0047.9
func TestACollectionAllocatesLittle(t *testing.T) {
	const connections = 200
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	samples := make([]telemetry.Sample, connections)
	for i := range samples {
		samples[i] = telemetry.Sample{Name: fmt.Sprint("server ", i), Conn: &telemetry.ConnSample{
			State: "ready", Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: 1}},
		}}
	}
	defer told.Watch(func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			for _, s := range samples {
				if !yield(s) {
					return
				}
			}
		}
	})()
	var all metricdata.ResourceMetrics
	ours := collecting(t, reader, &all)
	floor := metric.NewManualReader()
	values := observeAgain(t, metric.NewMeterProvider(metric.WithReader(floor)).Meter("floor"), &all)
	var again metricdata.ResourceMetrics
	if least := collecting(t, floor, &again); values < 20*connections || ours > least+2*connections {
		t.Errorf("%v allocations for %d values of %d connections; the SDK alone makes %v", ours, values, connections, least)
	}
}

// observeAgain makes instruments which observe the same values with the same attributes,
// made before. It returns how many.
func observeAgain(t *testing.T, meter api.Meter, all *metricdata.ResourceMetrics) (values int) {
	t.Helper()
	type value struct {
		to api.Float64Observable
		by []api.ObserveOption
	}
	var observed []value
	var instruments []api.Observable
	for _, m := range all.ScopeMetrics[0].Metrics {
		var to api.Float64Observable
		var err error
		var sets []attribute.Set
		switch data := m.Data.(type) {
		case metricdata.Gauge[float64]:
			to, err = meter.Float64ObservableGauge(m.Name)
			for _, p := range data.DataPoints {
				sets = append(sets, p.Attributes)
			}
		case metricdata.Sum[float64]:
			to, err = meter.Float64ObservableCounter(m.Name)
			for _, p := range data.DataPoints {
				sets = append(sets, p.Attributes)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		instruments = append(instruments, to)
		for _, set := range sets {
			observed = append(observed, value{to, []api.ObserveOption{api.WithAttributeSet(set)}})
		}
	}
	_, err := meter.RegisterCallback(func(_ context.Context, o api.Observer) error {
		for _, v := range observed {
			o.ObserveFloat64(v.to, 1, v.by...)
		}
		return nil
	}, instruments...)
	if err != nil {
		t.Fatal(err)
	}
	return len(observed)
}
