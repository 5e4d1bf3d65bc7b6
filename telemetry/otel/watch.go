package otel

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bowline-mcp/bowline/telemetry"
)

// maxConns is how many connections have series of their own. Those beyond are told
// together, as those of a server are, under the name "_OTHER", and stay there; what they have
// counted stays when they end. A place that is free goes to the next new connection. With
// Options.BySupervisor, it is also how many supervisors have a sum of their own.
const maxConns = 200

// A source is the function of one Watch.
type source struct {
	samples func() iter.Seq[telemetry.Sample]
}

// Watch records metrics of samples. At each collection it calls the function and reads
// all its samples. Pass client.Client.Samples, server.Server.Samples,
// supervisor.Supervisor.Samples, auth.Authorizer.Samples, or a function that yields samples of gates and handlers.
// If two parts of the same kind have the same name, a suffix distinguishes them. The parts
// of one function keep their suffixes while those of others come and go. The function runs on
// the goroutine that collects. Call forget to end this.
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

// newObservables creates the instruments of readings.
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

// A collection is one reading of all samples.
type collection struct {
	to      []metric.Float64Observable
	by      metric.Observer
	reading int     // the index of the present reading
	part    *series // the part whose values are read
}

// put reports a value of the present reading and part.
func (c *collection) put(value float64, more labels) {
	c.by.ObserveFloat64(c.to[c.reading], value, c.part.of(more)...)
}

// observe reads all samples. Collections run one at a time. No connection waits for them.
func (t *Telemetry) observe(to []metric.Float64Observable, o metric.Observer) {
	t.collecting.Lock()
	defer t.collecting.Unlock()
	t.mu.Lock()
	sources := slices.Clone(t.sources)
	t.mu.Unlock()
	t.crowd.round++
	c := &collection{to: to, by: o}
	put := c.put
	observe := func(s *telemetry.Sample, name attribute.KeyValue) {
		c.part = t.parts.of(name, t.crowd.round)
		for c.reading = range readings {
			readings[c.reading].of(s, put)
		}
	}
	for _, s := range sources {
		for sample := range s.samples() {
			name := t.parts.name(s, &sample, t.crowd.round)
			if sample.Conn == nil || !t.crowd.has(name.Value.AsString(), sample.Conn) {
				observe(&sample, name)
			}
		}
	}
	for supervisor, others := range t.crowd.collected() {
		name := keyConn.String(other)
		if supervisor != "" {
			name = keySupervisor.String(supervisor)
		}
		observe(&telemetry.Sample{Server: others}, name)
	}
	t.parts.forget(t.crowd.round)
}

// parts keeps the series of everything that is sampled, by name.
type parts struct {
	known   map[attribute.KeyValue]*series
	shared  map[label]*sharing
	clashed bool // whether two parts with the same name were reported
}

// A label is a name that parts may share.
type label struct {
	key  attribute.Key
	name string
}

func newParts() *parts {
	return &parts{known: make(map[attribute.KeyValue]*series), shared: make(map[label]*sharing)}
}

// A series contains the sets of attributes of one part. They are kept for the next
// collection, because most allocations of a collection would be for them.
type series struct {
	name  attribute.KeyValue
	alone []metric.ObserveOption
	more  map[labels][]metric.ObserveOption
	round uint64 // the last round in which the part was sampled
}

// of returns the series of a part that is sampled in a round.
func (p *parts) of(name attribute.KeyValue, round uint64) *series {
	s := p.known[name]
	if s == nil {
		s = &series{name: name, alone: optionOf(name), more: make(map[labels][]metric.ObserveOption)}
		p.known[name] = s
	}
	s.round = round
	return s
}

// forget drops the series and the names of parts that were not sampled in a round.
func (p *parts) forget(round uint64) {
	for name, s := range p.known {
		if s.round != round {
			delete(p.known, name)
		}
	}
	for name, s := range p.shared {
		if s.forget(round); len(s.holders) == 0 {
			delete(p.shared, name)
		}
	}
}

// of returns the set of attributes for a value.
func (s *series) of(more labels) []metric.ObserveOption {
	if more == (labels{}) {
		return s.alone
	}
	kept := s.more[more]
	if kept == nil {
		all := []attribute.KeyValue{s.name}
		for _, label := range more {
			if label.Valid() {
				all = append(all, label)
			}
		}
		if kept = optionOf(all...); len(s.more) < maxSets {
			s.more[more] = kept
		}
	}
	return kept
}

func optionOf(all ...attribute.KeyValue) []metric.ObserveOption {
	return []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(all...))}
}

// name returns the name of a sample of a source, with a suffix if another of its kind has it. It
// reports the first such name to the error handler of OpenTelemetry, because somebody could
// mistake one part for the other.
func (p *parts) name(from *source, s *telemetry.Sample, round uint64) attribute.KeyValue {
	key, name := keyOf(s), shorten(s.Name)
	by := p.shared[label{key, name}]
	if by == nil {
		by = new(sharing)
		p.shared[label{key, name}] = by
	}
	number := by.numberOf(from, round)
	if number == 1 {
		return key.String(name)
	}
	suffixed := name + "#" + strconv.Itoa(number)
	if !p.clashed {
		p.clashed = true
		global.Handle(fmt.Errorf("bowline: several parts of this program have the %s %q: metrics name another of them %q", key, name, suffixed))
	}
	return key.String(suffixed)
}

// keyOf returns the attribute that names a sample. It says of which kind the part is.
func keyOf(s *telemetry.Sample) attribute.Key {
	switch {
	case s.Supervisor != nil:
		return keySupervisor
	case s.Gate != nil:
		return keyGate
	case s.HTTP != nil:
		return keyHandler
	case s.Auth != nil:
		return keyResource
	default:
		return keyConn
	}
}

// A sharing contains the parts of one name by their numbers, from 1. A part keeps its number while
// others come and go: otherwise its counters would continue with the values of another.
type sharing struct {
	holders []holder
	next    int // where to look for the next part: they come in the same order each time
}

// A holder is the source that a series number is assigned to.
type holder struct {
	from  *source // nil: the number is free
	round uint64  // the last round in which the part was sampled
}

// numberOf returns the number of the next part of a source in a round: the one that it has, or
// the lowest that nobody has.
func (s *sharing) numberOf(from *source, round uint64) int {
	for i := range s.holders {
		at := (s.next + i) % len(s.holders)
		if h := &s.holders[at]; h.from == from && h.round != round {
			h.round, s.next = round, at+1
			return at + 1
		}
	}
	at := slices.IndexFunc(s.holders, func(h holder) bool { return h.from == nil })
	if at < 0 {
		at = len(s.holders)
		s.holders = append(s.holders, holder{})
	}
	s.holders[at] = holder{from, round}
	return at + 1
}

// forget frees the numbers of parts that were not sampled in a round.
func (s *sharing) forget(round uint64) {
	used := 0
	for i := range s.holders {
		if s.holders[i].round != round {
			s.holders[i] = holder{}
		} else {
			used = i + 1
		}
	}
	s.holders, s.next = s.holders[:used], 0
}

// A crowd decides which connections have series of their own, and adds up the others. This
// does not change while a connection is sampled: otherwise the sum of the others would fall
// or rise by everything that the connection has ever counted.
type crowd struct {
	round        uint64            // the number of the present collection
	own          map[string]uint64 // names with series of their own, and the last round in which they were sampled
	others       map[string]*member
	ended        map[string]*telemetry.ConnSample // the counts of others that have ended, of each sum
	bySupervisor bool
}

// A member is the last sample of a connection without series of its own.
type member struct {
	telemetry.ConnSample
	sum   string // the supervisor with whose connections it is added up; "": with all others
	round uint64
}

func newCrowd(bySupervisor bool) *crowd {
	return &crowd{
		own: make(map[string]uint64), others: make(map[string]*member), ended: make(map[string]*telemetry.ConnSample),
		bySupervisor: bySupervisor,
	}
}

// has reports whether a connection is one of the others, and then keeps its sample.
func (c *crowd) has(name string, sample *telemetry.ConnSample) bool {
	last := c.others[name]
	if _, own := c.own[name]; own || last == nil && len(c.own) < maxConns {
		c.own[name] = c.round
		return false
	}
	if last == nil {
		last = &member{sum: c.sumOf(sample)}
		c.others[name] = last
	} else if sample.Calls < last.Calls || sample.BytesIn < last.BytesIn || sample.BytesOut < last.BytesOut {
		c.end(last) // another connection has this name now
		last.sum = c.sumOf(sample)
	}
	settled := append(last.Settled[:0], sample.Settled...) // copied, because the slice of the sample would keep the whole sample in memory
	last.ConnSample, last.round = *sample, c.round
	last.Settled = settled
	return true
}

// sumOf returns the sum to which a new connection belongs, which is then there.
func (c *crowd) sumOf(sample *telemetry.ConnSample) string {
	sum := ""
	if c.bySupervisor {
		sum = shorten(sample.Supervisor)
	}
	if c.ended[sum] == nil {
		if len(c.ended) >= maxConns {
			sum = ""
		}
		c.ended[sum] = cmp.Or(c.ended[sum], new(telemetry.ConnSample))
	}
	return sum
}

// end adds the counts of a connection that is gone to those of the ended ones.
func (c *crowd) end(gone *member) {
	gone.InFlight = 0
	gone.Pending, gone.Tombstones, gone.Queued, gone.Serving = 0, 0, 0, 0
	gone.Waiting, gone.Streams, gone.Notifications, gone.Mailbox = 0, 0, 0, 0
	gone.Credit = 0
	c.ended[gone.sum].Add(&gone.ConnSample)
}

// collected ends a round. Connections that were not sampled in it are gone. It returns the
// sums of the others, without those that have no connection and have counted nothing.
func (c *crowd) collected() map[string]*telemetry.ServerSample {
	for name, round := range c.own {
		if round != c.round {
			delete(c.own, name)
		}
	}
	sums, states := make(map[string]*telemetry.ServerSample), make(map[stateOf]int)
	for name, m := range c.others {
		if m.round != c.round {
			c.end(m)
			delete(c.others, name)
			continue
		}
		states[stateOf{m.sum, m.State}]++
		if sums[m.sum] == nil {
			sums[m.sum] = new(telemetry.ServerSample)
		}
		sums[m.sum].Total.Add(&m.ConnSample)
	}
	for name, ended := range c.ended {
		total := sums[name]
		if total == nil {
			if ended.Settled == nil && ended.BytesOut == 0 && ended.Calls == 0 {
				delete(c.ended, name)
				continue
			}
			total = new(telemetry.ServerSample)
			sums[name] = total
		}
		total.Total.Add(ended)
	}
	for of, count := range states {
		total := sums[of.sum]
		total.Conns = append(total.Conns, telemetry.ConnsSample{State: of.state, Count: count})
	}
	return sums
}

// A stateOf is a state of connections of one sum.
type stateOf struct{ sum, state string }
