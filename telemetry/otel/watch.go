package otel

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bowline-mcp/bowline/telemetry"
)

// maxConns is how many connections have series of their own. Those beyond are told
// together, as those of a server are, under the name "_OTHER".
const maxConns = 200

// A source is what one Watch samples.
type source struct {
	samples func() iter.Seq[telemetry.Sample]
}

// Watch has metrics of the samples that the function ranges over be read at each
// collection: client.Client.Samples, server.Server.Samples, supervisor.Supervisor.Samples,
// or a function that yields those of gates and handlers. Two parts of one kind with one name are told
// apart by a suffix. The function is called by whoever collects. Forget ends that.
func (t *Telemetry) Watch(samples func() iter.Seq[telemetry.Sample]) (forget func()) {
	s := &source{samples}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources = append(t.sources, s)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sources = slices.DeleteFunc(t.sources, func(other *source) bool { return other == s })
	}
}

// newObservables makes the instruments of readings.
func newObservables(meter metric.Meter) ([]metric.Float64Observable, error) {
	made := make([]metric.Float64Observable, len(readings))
	var failed error
	for i, r := range readings {
		var err error
		if r.counts {
			made[i], err = meter.Float64ObservableCounter(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
		} else {
			made[i], err = meter.Float64ObservableGauge(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return made, failed
}

// observe reads all samples. It holds no lock while it does.
func (t *Telemetry) observe(to []metric.Float64Observable, o metric.Observer) {
	t.mu.Lock()
	sources := slices.Clone(t.sources)
	t.mu.Unlock()
	seen := make(map[attribute.KeyValue]int)
	conns := 0
	var rest crowd
	for _, s := range sources {
		for sample := range s.samples() {
			if sample.Conn != nil {
				if conns++; conns > maxConns {
					rest.add(sample.Conn)
					continue
				}
			}
			observe(to, o, &sample, unique(seen, &sample))
		}
	}
	if conns > maxConns {
		observe(to, o, &telemetry.Sample{Server: rest.sample()}, keyConn.String(other))
	}
}

func observe(to []metric.Float64Observable, o metric.Observer, s *telemetry.Sample, name attribute.KeyValue) {
	alone := metric.WithAttributeSet(attribute.NewSet(name))
	i := 0
	put := func(value float64, more ...attribute.KeyValue) {
		by := alone
		if len(more) > 0 {
			by = metric.WithAttributeSet(attribute.NewSet(append(more, name)...))
		}
		o.ObserveFloat64(to[i], value, by)
	}
	for i = range readings {
		readings[i].of(s, put)
	}
}

// unique returns the name of a sample, with a suffix if another of its kind has it.
func unique(seen map[attribute.KeyValue]int, s *telemetry.Sample) attribute.KeyValue {
	key := keyConn
	switch {
	case s.Supervisor != nil:
		key = keySupervisor
	case s.Gate != nil:
		key = keyGate
	case s.HTTP != nil:
		key = keyHandler
	}
	name := key.String(shorten(s.Name))
	if seen[name]++; seen[name] > 1 {
		return key.String(name.Value.AsString() + "#" + strconv.Itoa(seen[name]))
	}
	return name
}

// A crowd is the connections that have no series of their own.
type crowd struct {
	states map[string]int
	total  telemetry.ConnSample
}

func (c *crowd) add(one *telemetry.ConnSample) {
	if c.states == nil {
		c.states = make(map[string]int)
	}
	c.states[one.State]++
	c.total.Add(one)
}

func (c *crowd) sample() *telemetry.ServerSample {
	s := &telemetry.ServerSample{Total: c.total}
	for state, count := range c.states {
		s.Conns = append(s.Conns, telemetry.ConnsSample{State: state, Count: count})
	}
	return s
}
