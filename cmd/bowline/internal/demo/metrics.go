package demo

import (
	"context"
	"fmt"
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// metrics collects the OpenTelemetry metrics of the demo's connections.
type metrics struct {
	*otel.Telemetry
	reader   *metric.ManualReader
	provider *metric.MeterProvider
}

func newMetrics() (*metrics, error) {
	m := &metrics{reader: metric.NewManualReader()}
	m.provider = metric.NewMeterProvider(metric.WithReader(m.reader))
	var err error
	m.Telemetry, err = otel.New(otel.Options{MeterProvider: m.provider})
	return m, err
}

// samplesOf ranges over the connections of the servers, also when they are closed.
func samplesOf(servers []*server) func() iter.Seq[telemetry.Sample] {
	return func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			for _, s := range servers {
				if !yield(s.Session.Conn().Control().Sample()) {
					return
				}
			}
		}
	}
}

// A collection is the metrics by their names.
type collection map[string]metricdata.Metrics

func (m *metrics) collect(ctx context.Context) (collection, error) {
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(ctx, &all); err != nil {
		return nil, fmt.Errorf("demo: collect metrics: %w", err)
	}
	found := make(collection)
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			found[one.Name] = one
		}
	}
	return found, nil
}

// each calls a function with the values of a metric that is sampled.
func (c collection) each(name string, f func(by attribute.Set, value float64)) {
	var points []metricdata.DataPoint[float64]
	switch data := c[name].Data.(type) {
	case metricdata.Sum[float64]:
		points = data.DataPoints
	case metricdata.Gauge[float64]:
		points = data.DataPoints
	}
	for _, p := range points {
		f(p.Attributes, p.Value)
	}
}

func (c collection) histogram(name string, f func(by attribute.Set, p metricdata.HistogramDataPoint[float64])) {
	data, _ := c[name].Data.(metricdata.Histogram[float64])
	for _, p := range data.DataPoints {
		f(p.Attributes, p)
	}
}

func text(by attribute.Set, key attribute.Key) string {
	value, _ := by.Value(key)
	return value.AsString()
}

// entries returns an entry for each server with the counts from its metrics.
func (c collection) entries(servers []*server) []*entry {
	entries, byName := make([]*entry, len(servers)), make(map[string]*entry)
	for i, s := range servers {
		entries[i] = &entry{Server: s.name, Settled: make(map[string]map[string]uint64)}
		byName[s.name] = entries[i]
	}
	of := func(by attribute.Set) *entry {
		if e := byName[text(by, "bowline.conn")]; e != nil {
			return e
		}
		return new(entry) // the metric belongs to no server of the demo
	}
	c.each("bowline.calls", func(by attribute.Set, n float64) {
		e, cause := of(by), text(by, "bowline.cause")
		if e.Settled[cause] == nil {
			e.Settled[cause] = make(map[string]uint64)
		}
		e.Settled[cause][text(by, "bowline.delivery")] = uint64(n)
		e.Ended += uint64(n)
		e.Made += uint64(n)
	})
	c.each("bowline.calls.in_flight", func(by attribute.Set, n float64) { of(by).Made += uint64(n) })
	c.each("bowline.replies.late", func(by attribute.Set, n float64) { of(by).Late = uint64(n) })
	c.each("bowline.frames.malformed", func(by attribute.Set, n float64) { of(by).Dropped = uint64(n) })
	c.each("bowline.conn.epoch", func(by attribute.Set, n float64) { of(by).Restarts = uint64(n) - 1 })
	c.histogram("bowline.conn.outage.duration", func(by attribute.Set, p metricdata.HistogramDataPoint[float64]) {
		if longest, defined := p.Max.Value(); defined {
			e := of(by)
			e.Outage = max(e.Outage, longest)
		}
	})
	return entries
}

// operationCount returns how many tool calls the histogram of callers has counted.
func (c collection) operationCount() (calls uint64) {
	c.histogram("mcp.client.operation.duration", func(by attribute.Set, p metricdata.HistogramDataPoint[float64]) {
		if text(by, "mcp.method.name") == "tools/call" {
			calls += p.Count
		}
	})
	return calls
}

// row returns how many calls of a server ended with a cause, by delivery.
func (e *entry) row(cause conn.Cause) (row [3]uint64, any bool) {
	for i, delivery := range []conn.Delivery{conn.NotSent, conn.Sent, conn.Unknown} {
		row[i] = e.Settled[cause.String()][delivery.String()]
		any = any || row[i] > 0
	}
	return row, any
}

// agree returns nil if both entries have the same counts. Outages may differ by the
// time between two readings of the clock.
func (e *entry) agree(metrics *entry) error {
	for _, cause := range conn.Causes() {
		counted, _ := e.row(cause)
		if row, _ := metrics.row(cause); row != counted {
			return fmt.Errorf("demo: %s: by the metrics %v calls ended by %s, and by the statistics %v", e.Server, row, cause, counted)
		}
	}
	counted, metered := [...]uint64{e.Made, e.Ended, e.Late, e.Dropped, e.Restarts}, [...]uint64{metrics.Made, metrics.Ended, metrics.Late, metrics.Dropped, metrics.Restarts}
	if counted != metered {
		return fmt.Errorf("demo: %s: calls made, ended, late, malformed frames and restarts are %v by the metrics, and %v by the statistics", e.Server, metered, counted)
	}
	return nil
}
