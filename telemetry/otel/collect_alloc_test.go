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

	"github.com/bowline-mcp/bowline/protocol"
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

// One collection of 200 connections, and one of 1,000 with five methods each, allocates what
// OpenTelemetry's SDK does for so many values, and next to nothing for each connection. The
// race detector allocates too.
//
// Guarantees: G-0047.9
func TestACollectionAllocatesLittle(t *testing.T) {
	t.Run("200", func(t *testing.T) { collectionAllocatesLittle(t, 200) })
	t.Run("1000", func(t *testing.T) { collectionAllocatesLittle(t, 1000) })
}

func collectionAllocatesLittle(t *testing.T, connections int) {
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
	hooks := told.Hooks()
	for _, s := range samples {
		hooks.RequestStopped(t.Context(), telemetry.RequestStopped{Conn: s.Name, Cause: "answered"})
		for _, method := range []string{
			protocol.NotificationProgress, protocol.NotificationMessage, protocol.NotificationToolsListChanged,
			protocol.NotificationPromptsListChanged, protocol.NotificationResourcesUpdated,
		} {
			hooks.NotificationReceived(telemetry.NotificationReceived{Conn: s.Name, Method: method})
		}
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
	if least := collecting(t, floor, &again); values < 20*200+2*connections || ours > least+float64(2*connections) {
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
		if added, happened := recordAgain(t, meter, m); happened {
			values += added
			continue
		}
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
	return values + len(observed)
}

// recordAgain does the same for an instrument of what happens, and reports whether it is one.
func recordAgain(t *testing.T, meter api.Meter, m metricdata.Metrics) (values int, happened bool) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		to, err := meter.Int64Counter(m.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range data.DataPoints {
			to.Add(t.Context(), p.Value, api.WithAttributeSet(p.Attributes))
		}
		return len(data.DataPoints), true
	case metricdata.Histogram[float64]:
		to, err := meter.Float64Histogram(m.Name, api.WithExplicitBucketBoundaries(data.DataPoints[0].Bounds...))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range data.DataPoints {
			to.Record(t.Context(), 1, api.WithAttributeSet(p.Attributes))
		}
		return len(data.DataPoints), true
	default:
		return 0, false
	}
}
