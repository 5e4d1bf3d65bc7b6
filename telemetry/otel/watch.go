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
// together, as those of a server are, under the name "_OTHER", and stay there; what they have
// counted stays when they end. A place that is free goes to the next new connection.
const maxConns = 200

// A source is what one Watch samples.
type source struct {
	samples func() iter.Seq[telemetry.Sample]
}

// Watch records metrics of samples. At each collection it calls the function and reads
// all its samples. Pass client.Client.Samples, server.Server.Samples,
// supervisor.Supervisor.Samples, or a function that yields samples of gates and handlers.
// If two parts of the same kind have the same name, a suffix distinguishes them. The
// function runs on the goroutine that collects. Call forget to end this.
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

// observe reads all samples. One collection waits for another, and no connection waits for any.
func (t *Telemetry) observe(to []metric.Float64Observable, o metric.Observer) {
	t.collecting.Lock()
	defer t.collecting.Unlock()
	t.mu.Lock()
	sources := slices.Clone(t.sources)
	t.mu.Unlock()
	seen := make(map[attribute.KeyValue]int)
	t.crowd.round++
	for _, s := range sources {
		for sample := range s.samples() {
			name := unique(seen, &sample)
			if sample.Conn == nil || !t.crowd.has(name.Value.AsString(), sample.Conn) {
				observe(to, o, &sample, name)
			}
		}
	}
	if others := t.crowd.collected(); others != nil {
		observe(to, o, &telemetry.Sample{Server: others}, keyConn.String(other))
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

// A crowd decides which connections have series of their own, and adds up the others. A
// connection stays what it is for as long as it is sampled: if it changed sides, the counts of
// the others would fall by all that it has ever counted, or it would begin with that.
type crowd struct {
	round  uint64            // of the collection
	own    map[string]uint64 // names with series of their own, and the last round in which they were sampled
	others map[string]member
	ended  telemetry.ConnSample // the counts of the others that are gone
}

// A member is the last sample of one of the others.
type member struct {
	telemetry.ConnSample
	round uint64
}

func newCrowd() *crowd { return &crowd{own: make(map[string]uint64), others: make(map[string]member)} }

// has reports whether a connection is one of the others, and notes its sample if so.
func (c *crowd) has(name string, sample *telemetry.ConnSample) bool {
	last, known := c.others[name]
	if _, own := c.own[name]; own || !known && len(c.own) < maxConns {
		c.own[name] = c.round
		return false
	}
	if sample.Calls < last.Calls || sample.BytesIn < last.BytesIn || sample.BytesOut < last.BytesOut {
		c.end(last) // another connection has the name now
	}
	c.others[name] = member{*sample, c.round}
	return true
}

// end keeps the counts of one that is gone.
func (c *crowd) end(gone member) {
	gone.InFlight = 0
	gone.Pending, gone.Tombstones, gone.Queued, gone.Serving = 0, 0, 0, 0
	gone.Waiting, gone.Streams, gone.Notifications, gone.Mailbox = 0, 0, 0, 0
	c.ended.Add(&gone.ConnSample)
}

// collected ends a round: who was not sampled is gone. It returns the others together, or nil if
// there were never any.
func (c *crowd) collected() *telemetry.ServerSample {
	for name, round := range c.own {
		if round != c.round {
			delete(c.own, name)
		}
	}
	total, states := &telemetry.ServerSample{}, make(map[string]int)
	for name, m := range c.others {
		if m.round != c.round {
			c.end(m)
			delete(c.others, name)
			continue
		}
		states[m.State]++
		total.Total.Add(&m.ConnSample)
	}
	total.Total.Add(&c.ended)
	if len(c.others) == 0 && c.ended.Settled == nil && c.ended.BytesOut == 0 && c.ended.Calls == 0 {
		return nil
	}
	for state, count := range states {
		total.Conns = append(total.Conns, telemetry.ConnsSample{State: state, Count: count})
	}
	return total
}
