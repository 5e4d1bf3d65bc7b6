package otel

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bowline-mcp/bowline/telemetry"
)

// maxConns is how many connections have series of their own. Those beyond are added
// up under "_OTHER".
const maxConns = 200

// A source is what one Watch samples.
type source struct {
	samples func() iter.Seq[telemetry.Sample]
}

// Watch has metrics of the samples that the function ranges over be read at each
// collection: client.Client.Samples, supervisor.Supervisor.Samples, or a function that
// yields those of gates and handlers. Two parts of one kind with one name are told
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

// A reading is one number of a connection.
type reading struct {
	name, unit, help string
	counts           bool // it never falls
	read             func(*telemetry.ConnSample) float64
}

// connReadings are the numbers of a connection that have no attribute but its name.
var connReadings = []reading{
	{"bowline.conn.up", "", "1 while the connection is ready, else 0.", false, func(s *telemetry.ConnSample) float64 {
		if s.State == "ready" {
			return 1
		}
		return 0
	}},
	{"bowline.conn.outage", "s", "Time without a ready connection since the first, the present outage included.", true, func(s *telemetry.ConnSample) float64 { return s.Outage.Seconds() }},
	{"bowline.conn.backoff.remaining", "s", "Time until the next attempt to connect.", false, func(s *telemetry.ConnSample) float64 {
		if s.NextAttempt.IsZero() {
			return 0
		}
		return max(time.Until(s.NextAttempt), 0).Seconds()
	}},
	{"bowline.conn.epoch", "", "Number of the present incarnation.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Epoch) }},
	{"bowline.calls.in_flight", "", "Calls that have not ended.", false, func(s *telemetry.ConnSample) float64 { return float64(s.InFlight) }},
	{"bowline.call.retries", "", "Attempts beyond the first of each call.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Retries) }},
	{"bowline.replies.late", "", "Replies to calls that had ended.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Late) }},
	{"bowline.replies.unknown", "", "Replies to calls that were never made.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Unknown) }},
	{"bowline.frames.malformed", "", "Frames that were not valid messages.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Malformed) }},
	{"bowline.bytes.received", "By", "Bytes of messages that came in.", true, func(s *telemetry.ConnSample) float64 { return float64(s.BytesIn) }},
	{"bowline.bytes.sent", "By", "Bytes of messages that went out.", true, func(s *telemetry.ConnSample) float64 { return float64(s.BytesOut) }},
	{"bowline.conn.stalls", "", "Times that the connection stopped reading for a while.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Stalls) }},
	{"bowline.hooks.dropped", "", "Events that reached no hook.", true, func(s *telemetry.ConnSample) float64 { return float64(s.Dropped) }},
	{"bowline.serving", "", "Requests of the peer that are served.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Serving) }},
	{"bowline.waiting", "", "Requests of the peer that wait to be served.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Waiting) }},
	{"bowline.debug.mailbox", "", "Events that wait for the connection itself.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Mailbox) }},
	{"bowline.debug.tombstones", "", "Calls without an answer that are remembered.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Tombstones) }},
	{"bowline.debug.outbound.queued", "", "Frames that wait for a busy link.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Queued) }},
	{"bowline.debug.streams", "", "Streams of the link beside the main one.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Streams) }},
	{"bowline.debug.notices", "", "Notifications that wait for the handler.", false, func(s *telemetry.ConnSample) float64 { return float64(s.Notifications) }},
}

// readings are the instruments of what is sampled.
type readings struct {
	conns                                                             []metric.Float64Observable // as connReadings
	state, calls, stalled, holding, waiting                           metric.Float64Observable
	children, restarts, gaveUp, stuck, sessions, ended, held, refused metric.Float64Observable
	all                                                               []metric.Observable
}

func newReadings(meter metric.Meter) (*readings, error) {
	r := new(readings)
	var failed error
	observable := func(name, unit, help string, counts bool) metric.Float64Observable {
		var made metric.Float64Observable
		var err error
		if counts {
			made, err = meter.Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
		} else {
			made, err = meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
		r.all = append(r.all, made)
		return made
	}
	for _, c := range connReadings {
		r.conns = append(r.conns, observable(c.name, c.unit, c.help, c.counts))
	}
	r.state = observable("bowline.conn.state", "", "1 for the present state of the connection.", false)
	r.calls = observable("bowline.calls", "", "Calls that have ended, by cause and delivery.", true)
	r.stalled = observable("bowline.conn.stalled", "", "1 while the connection does not read from its peer.", false)
	r.holding = observable("bowline.gate.holding", "", "Connections that connect.", false)
	r.waiting = observable("bowline.gate.waiting", "", "Connections that wait for a place to connect.", false)
	r.children = observable("bowline.supervisor.children", "", "Children, by state.", false)
	r.restarts = observable("bowline.supervisor.restarts", "", "Restarts of children.", true)
	r.gaveUp = observable("bowline.supervisor.gave_up", "", "Times that the supervisor gave up.", true)
	r.stuck = observable("bowline.supervisor.stuck", "", "Children that did not stop in time.", true)
	r.sessions = observable("bowline.http.sessions", "", "Sessions over HTTP.", false)
	r.ended = observable("bowline.http.sessions.ended", "", "Sessions over HTTP that have ended.", true)
	r.held = observable("bowline.http.held", "By", "Bytes of requests that are held.", false)
	r.refused = observable("bowline.http.refused", "", "HTTP requests that were refused, by status.", true)
	return r, failed
}

// observe reads all samples. It holds no lock while it does.
func (t *Telemetry) observe(r *readings, o metric.Observer) {
	t.mu.Lock()
	sources := slices.Clone(t.sources)
	t.mu.Unlock()
	seen := make(map[string]int)
	conns := 0
	var rest *telemetry.ConnSample
	for _, s := range sources {
		for sample := range s.samples() {
			switch {
			case sample.Conn != nil:
				if conns++; conns > maxConns {
					rest = addUp(rest, sample.Conn)
					continue
				}
				r.observeConn(o, unique(seen, "conn", sample.Name), sample.Conn)
			case sample.Supervisor != nil:
				r.observeSupervisor(o, unique(seen, "supervisor", sample.Name), sample.Supervisor)
			case sample.Gate != nil:
				by := metric.WithAttributes(keyGate.String(unique(seen, "gate", sample.Name)))
				o.ObserveFloat64(r.holding, float64(sample.Gate.Holding), by)
				o.ObserveFloat64(r.waiting, float64(sample.Gate.Waiting), by)
			case sample.HTTP != nil:
				r.observeHTTP(o, unique(seen, "http", sample.Name), sample.HTTP)
			}
		}
	}
	if rest != nil {
		r.observeConn(o, other, rest)
	}
}

// unique returns the name with a suffix if another of its kind has it.
func unique(seen map[string]int, kind, name string) string {
	name = shorten(name)
	key := kind + " " + name
	if seen[key]++; seen[key] == 1 {
		return name
	}
	return name + "#" + strconv.Itoa(seen[key])
}

func (r *readings) observeConn(o metric.Observer, name string, s *telemetry.ConnSample) {
	conn := keyConn.String(name)
	by := metric.WithAttributeSet(attribute.NewSet(conn))
	for i := range connReadings {
		o.ObserveFloat64(r.conns[i], connReadings[i].read(s), by)
	}
	if s.State != "" {
		o.ObserveFloat64(r.state, 1, metric.WithAttributes(conn, keyState.String(s.State)))
	}
	if s.Stall != "" {
		o.ObserveFloat64(r.stalled, 1, metric.WithAttributes(conn, keyWhy.String(s.Stall)))
	}
	for _, settled := range s.Settled {
		o.ObserveFloat64(r.calls, float64(settled.Count), metric.WithAttributes(conn, keyCause.String(settled.Cause), keyDelivery.String(settled.Delivery)))
	}
}

func (r *readings) observeSupervisor(o metric.Observer, name string, s *telemetry.SupervisorSample) {
	supervisor := keySupervisor.String(name)
	by := metric.WithAttributes(supervisor)
	o.ObserveFloat64(r.restarts, float64(s.Restarts), by)
	o.ObserveFloat64(r.gaveUp, float64(s.GaveUp), by)
	o.ObserveFloat64(r.stuck, float64(s.Stuck), by)
	for _, c := range s.Children {
		o.ObserveFloat64(r.children, float64(c.Count), metric.WithAttributes(supervisor, keyState.String(c.State)))
	}
}

func (r *readings) observeHTTP(o metric.Observer, name string, s *telemetry.HTTPSample) {
	handler := keyHandler.String(name)
	o.ObserveFloat64(r.sessions, float64(s.Sessions), metric.WithAttributes(handler))
	o.ObserveFloat64(r.held, float64(s.Held), metric.WithAttributes(handler))
	for _, e := range s.Ended {
		o.ObserveFloat64(r.ended, float64(e.Count), metric.WithAttributes(handler, keyWhy.String(e.Why)))
	}
	for _, f := range s.Refused {
		o.ObserveFloat64(r.refused, float64(f.Count), metric.WithAttributes(handler, keyHTTPStatus.Int(f.Status)))
	}
}

// addUp adds the counts and sizes of a connection to those of others. States and
// times are of one connection, and are left out.
func addUp(sum, s *telemetry.ConnSample) *telemetry.ConnSample {
	if sum == nil {
		sum = new(telemetry.ConnSample)
	}
	for _, settled := range s.Settled {
		i := slices.IndexFunc(sum.Settled, func(o telemetry.Settled) bool { return o.Cause == settled.Cause && o.Delivery == settled.Delivery })
		if i < 0 {
			sum.Settled = append(sum.Settled, settled)
		} else {
			sum.Settled[i].Count += settled.Count
		}
	}
	sum.Outage += s.Outage
	for _, n := range []struct{ sum, one *uint64 }{
		{&sum.Calls, &s.Calls}, {&sum.InFlight, &s.InFlight}, {&sum.Retries, &s.Retries}, {&sum.Late, &s.Late}, {&sum.Unknown, &s.Unknown},
		{&sum.Malformed, &s.Malformed}, {&sum.Shed, &s.Shed}, {&sum.Stalls, &s.Stalls}, {&sum.Dropped, &s.Dropped},
		{&sum.BytesIn, &s.BytesIn}, {&sum.BytesOut, &s.BytesOut},
	} {
		*n.sum += *n.one
	}
	for _, n := range []struct{ sum, one *int }{
		{&sum.Tombstones, &s.Tombstones}, {&sum.Queued, &s.Queued}, {&sum.Serving, &s.Serving}, {&sum.Waiting, &s.Waiting},
		{&sum.Streams, &s.Streams}, {&sum.Notifications, &s.Notifications}, {&sum.Mailbox, &s.Mailbox},
	} {
		*n.sum += *n.one
	}
	return sum
}
