package otel_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// watching returns a reader of the samples.
func watching(t *testing.T, samples ...telemetry.Sample) *site {
	t.Helper()
	s := &site{reader: metric.NewManualReader()}
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(s.reader))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(told.Watch(func() iter.Seq[telemetry.Sample] { return slices.Values(samples) }))
	return s
}

// numbers returns the values of a metric that is read, by one attribute.
func numbers(m metricdata.Metrics, by attribute.Key) map[string]float64 {
	found := make(map[string]float64)
	var points []metricdata.DataPoint[float64]
	switch data := m.Data.(type) {
	case metricdata.Sum[float64]:
		points = data.DataPoints
	case metricdata.Gauge[float64]:
		points = data.DataPoints
	}
	for _, p := range points {
		value, _ := p.Attributes.Value(by)
		found[value.AsString()] += p.Value
	}
	return found
}

// Two hundred connections have series of their own. Those beyond them, and those of a
// server, are told together: by state, and never as up or away.
//
// Guarantees: G-0047.8
func TestConnectionsBeyondTheBoundAreToldTogether(t *testing.T) {
	var samples []telemetry.Sample
	for i := range 203 {
		state := "ready"
		if i == 202 {
			state = "backoff"
		}
		samples = append(samples, telemetry.Sample{Name: fmt.Sprint(i), Conn: &telemetry.ConnSample{
			State: state, Calls: 2, Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: 1}}, InFlight: 1, BytesIn: 10,
		}})
	}
	samples = append(samples, telemetry.Sample{Name: "front", Server: &telemetry.ServerSample{
		Conns: []telemetry.ConnsSample{{State: "ready", Count: 7}}, Total: telemetry.ConnSample{BytesIn: 70},
	}})
	all := watching(t, samples...).collect(t)
	for name, want := range map[string]struct {
		own           float64 // of connection 0
		other, server float64
		series        int
	}{
		"bowline.conn.up":         {1, 0, 0, 200},
		"bowline.conn.state":      {1, 0, 0, 200},
		"bowline.conns":           {0, 3, 7, 2},
		"bowline.calls":           {1, 3, 0, 202},
		"bowline.calls.in_flight": {1, 3, 0, 202},
		"bowline.bytes.received":  {10, 30, 70, 202},
	} {
		got := numbers(all[name], "bowline.conn")
		if got["0"] != want.own || got["_OTHER"] != want.other || got["front"] != want.server || len(got) != want.series {
			t.Errorf("%s has %d series: %v of one, %v of the others, %v of the server", name, len(got), got["0"], got["_OTHER"], got["front"])
		}
	}
	if unknown, there := numbers(all["bowline.calls"], "bowline.delivery")["unknown"]; !there || unknown != 0 {
		t.Error("calls that nobody knows of are not told from zero on, so an alert misses the first")
	}
	if states := numbers(all["bowline.conns"], "bowline.state"); states["ready"] != 9 || states["backoff"] != 1 {
		t.Errorf("connections by state: %v", states)
	}
}

// A connection stays among the others, or by itself, while others come and go, and no count ever
// falls.
//
// Guarantees: G-0047.8
func TestCountsNeverFall(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	s, present := &site{reader: reader}, make(map[int]uint64) // what each has counted
	defer told.Watch(func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			for _, id := range slices.Sorted(maps.Keys(present)) {
				sample := &telemetry.ConnSample{
					State: "ready", Calls: present[id], BytesIn: 10 * present[id], InFlight: 1,
					Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: present[id]}},
				}
				if !yield(telemetry.Sample{Name: strconv.Itoa(id), Conn: sample}) {
					return
				}
			}
		}
	})()
	var before map[string]float64
	collect := func(names, others int, calls float64) {
		t.Helper()
		all := s.collect(t)
		for _, metric := range []string{"bowline.calls", "bowline.bytes.received"} {
			now := numbers(all[metric], "bowline.conn")
			for name, value := range now {
				if value < before[metric+name] {
					t.Errorf("%s of %s falls from %v to %v", metric, name, before[metric+name], value)
				}
			}
		}
		before = make(map[string]float64)
		for _, metric := range []string{"bowline.calls", "bowline.bytes.received"} {
			for name, value := range numbers(all[metric], "bowline.conn") {
				before[metric+name] = value
			}
		}
		up, inFlight := numbers(all["bowline.conn.up"], "bowline.conn"), numbers(all["bowline.calls.in_flight"], "bowline.conn")
		if len(up) != names || inFlight["_OTHER"] != float64(others) || before["bowline.calls_OTHER"] != calls {
			t.Errorf("%d have series of their own, %v do not, and those have counted %v; want %d, %d and %v",
				len(up), inFlight["_OTHER"], before["bowline.calls_OTHER"], names, others, calls)
		}
	}
	for id := range 210 {
		present[id] = 5
	}
	collect(200, 10, 50)
	delete(present, 0) // which has series of its own
	collect(199, 10, 50)
	present[300] = 7 // has its place
	collect(200, 10, 50)
	delete(present, 209) // what it has counted stays
	present[208] = 9
	collect(200, 9, 54)
	present[207] = 1 // another connection of that name
	collect(200, 9, 55)
	clear(present)
	collect(0, 0, 55)
	collect(0, 0, 55)
}

// A server that has no client has a series all the same: alerts tell by it that it is
// one.
func TestAServerWithoutClientsIsTold(t *testing.T) {
	samples := []telemetry.Sample{
		{Name: "idle", Server: new(telemetry.ServerSample)},
		{Name: "waits", Server: &telemetry.ServerSample{Conns: []telemetry.ConnsSample{{State: "connecting", Count: 2}}}},
		{Name: "serves", Server: &telemetry.ServerSample{Conns: []telemetry.ConnsSample{{State: "ready", Count: 3}}}},
		{Name: "client", Conn: &telemetry.ConnSample{State: "ready"}},
	}
	conns := watching(t, samples...).collect(t)["bowline.conns"]
	got := numbers(conns, "bowline.conn")
	if idle, there := got["idle"]; !there || idle != 0 || got["waits"] != 2 || got["serves"] != 3 || len(got) != 3 {
		t.Errorf("connections: %v", got)
	}
	if states := numbers(conns, "bowline.state"); states["ready"] != 3 || states["connecting"] != 2 {
		t.Errorf("connections by state: %v", states)
	}
}

// Two connections of one name have series of their own, and so do names that differ
// in what is cut.
func TestPartsOfOneName(t *testing.T) {
	long := string(make([]byte, 1<<20))
	var samples []telemetry.Sample
	for i, name := range []string{"a", "a", long + "x", long + "y"} {
		samples = append(samples, telemetry.Sample{Name: name, Conn: &telemetry.ConnSample{Epoch: uint64(i)}})
	}
	samples = append(samples, telemetry.Sample{Name: "a", Gate: &telemetry.GateSample{Holding: 5}})
	s := watching(t, samples...)
	got := numbers(s.collect(t)["bowline.conn.epoch"], "bowline.conn")
	if len(got) != 4 || got["a"] != 0 || got["a#2"] != 1 {
		t.Errorf("epochs: %v", got)
	}
	for name := range got {
		if len([]rune(name)) > 130 {
			t.Errorf("a name has %d bytes", len(name))
		}
	}
	if got := numbers(s.collect(t)["bowline.gate.holding"], "bowline.gate"); got["a"] != 5 {
		t.Errorf("gates: %v", got)
	}
}

// Parts of one name keep their suffixes while others come and go, so that no counter continues with
// the values of another. A suffix that nobody has is used again.
//
// Guarantees: G-0047.9
func TestSuffixesStayWithTheirParts(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{reader: reader}
	watch := func(denied ...uint64) (forget func()) {
		return told.Watch(func() iter.Seq[telemetry.Sample] {
			return func(yield func(telemetry.Sample) bool) {
				for _, count := range denied {
					if !yield(telemetry.Sample{Name: "https://h", Auth: &telemetry.AuthSample{Denied: []telemetry.Refused{{Status: 401, Count: count}}}}) {
						return
					}
				}
			}
		})
	}
	want := func(want map[string]float64) {
		t.Helper()
		if got := numbers(s.collect(t)["bowline.auth.denied"], "bowline.resource"); !maps.Equal(got, want) {
			t.Errorf("the counters are %v, want %v", got, want)
		}
	}
	first, second := watch(100), watch(7, 8)
	want(map[string]float64{"https://h": 100, "https://h#2": 7, "https://h#3": 8})
	first()
	want(map[string]float64{"https://h#2": 7, "https://h#3": 8})
	defer watch(5)()
	want(map[string]float64{"https://h": 5, "https://h#2": 7, "https://h#3": 8})
	want(map[string]float64{"https://h": 5, "https://h#2": 7, "https://h#3": 8})
	second()
	want(map[string]float64{"https://h": 5})
	defer watch(9)()
	want(map[string]float64{"https://h": 5, "https://h#2": 9})
}

// That two connections have one name is reported once, by the first name that clashes.
//
// Guarantees: G-0047.9
func TestNameConflictIsReportedOnce(t *testing.T) {
	var told []string
	before := global.GetErrorHandler()
	global.SetErrorHandler(global.ErrorHandlerFunc(func(err error) { told = append(told, err.Error()) }))
	t.Cleanup(func() { global.SetErrorHandler(before) })
	var samples []telemetry.Sample
	for _, name := range []string{"a", "b", "a\nb", "a", "b", "a"} {
		samples = append(samples, telemetry.Sample{Name: name, Conn: new(telemetry.ConnSample)})
	}
	s := watching(t, append(samples, telemetry.Sample{Name: "b", Gate: new(telemetry.GateSample)})...)
	for range 3 {
		if got := numbers(s.collect(t)["bowline.conn.up"], "bowline.conn"); len(got) != len(samples) {
			t.Errorf("connections: %v", got)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], `"a"`) || !strings.Contains(told[0], `"a#2"`) {
		t.Errorf("told: %q", told)
	}
}

// Times that are read are of the monotonic clock too, so that what is reckoned from them stays
// right when the clock of the system is set back. (That a time has one is seen in its text.)
func TestTimesAreOfTheMonotonicClock(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest, otel.Options{})
	for sample := range s.client.Samples() {
		if !strings.Contains(sample.Conn.Since.String(), " m=") {
			t.Errorf("%s is %s since %s", sample.Name, sample.Conn.State, sample.Conn.Since)
		}
	}
	s.arm()
	s.CallTool(t.Context(), &protocol.CallToolParams{Name: "crash"}) // it is lost
	next := time.Now().Add(time.Hour)
	if !strings.Contains(next.String(), " m=") {
		t.Fatal("times here have no monotonic clock")
	}
	told := watching(t, telemetry.Sample{Name: "a", Conn: &telemetry.ConnSample{State: "backoff", NextAttempt: next}})
	remaining := numbers(told.collect(t)["bowline.conn.backoff.remaining"], "bowline.conn")["a"]
	if remaining <= 3500 || remaining > 3600 {
		t.Errorf("the next attempt is in %v s", remaining)
	}
}

// Whatever takes time is told in seconds.
func TestDurationsAreInSeconds(t *testing.T) {
	s := newSite(t, "memory", protocol.Latest, otel.Options{})
	began := time.Now()
	if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add"}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	all := s.collect(t)
	for _, name := range []string{"mcp.client.operation.duration", "mcp.server.operation.duration"} {
		for _, p := range all[name].Data.(metricdata.Histogram[float64]).DataPoints {
			if method, _ := p.Attributes.Value("mcp.method.name"); method.AsString() == protocol.MethodCallTool && (p.Sum <= 0 || p.Sum > took) {
				t.Errorf("%s: a call of less than %v s took %v", name, took, p.Sum)
			}
		}
	}

	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	hooks := told.Hooks()
	hooks.Retried(t.Context(), telemetry.Retried{Duration: 1500 * time.Millisecond})
	hooks.ServeStopped(t.Context(), telemetry.ServeStopped{Queued: 2500 * time.Millisecond})
	hooks.Transition(telemetry.Transition{From: "ready", To: "closing", Lasted: 3500 * time.Millisecond})
	hooks.Gap(telemetry.Gap{Duration: 4500 * time.Millisecond})
	hooks.Stalled(telemetry.Stalled{Over: true, Duration: 5500 * time.Millisecond})
	hooks.RequestStopped(t.Context(), telemetry.RequestStopped{Cause: "answered", Duration: 60 * time.Second, Last: 6500 * time.Millisecond})
	hooks.Transition(telemetry.Transition{From: "initializing", To: "backoff", Kind: "handshake failed"})
	hooks.Transition(telemetry.Transition{From: "backoff", To: "closing", Kind: "open failed"}) // is no attempt
	hooks.Stuck(telemetry.Stuck{Method: "invented"})
	hooks.Shed(telemetry.Shed{Method: "invented"})
	all = (&site{reader: reader}).collect(t)
	for _, p := range all["bowline.call.attempt.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		if cause, _ := p.Attributes.Value("bowline.cause"); cause.AsString() == "answered" && p.Sum != 6.5 {
			t.Errorf("the last attempt took %v s, want 6.5", p.Sum)
		}
	}
	for name, want := range map[string]string{
		"bowline.conn.attempts": "bowline.result=handshake failed", "bowline.serve.stuck": "mcp.method.name=_OTHER", "bowline.notifications.shed": "mcp.method.name=_OTHER",
	} {
		if data, ok := all[name].Data.(metricdata.Sum[int64]); !ok || len(data.DataPoints) != 1 || data.DataPoints[0].Value != 1 ||
			data.DataPoints[0].Attributes.Encoded(attribute.DefaultEncoder()) != want {
			t.Errorf("%s is %+v, want one with %s", name, all[name].Data, want)
		}
	}
	for name, want := range map[string]float64{
		"bowline.call.attempt.duration": 1.5, "bowline.serve.queue.duration": 2.5, "mcp.client.session.duration": 3.5, "bowline.conn.outage.duration": 4.5, "bowline.conn.stall.duration": 5.5,
	} {
		if data, ok := all[name].Data.(metricdata.Histogram[float64]); !ok || !slices.ContainsFunc(data.DataPoints, func(p metricdata.HistogramDataPoint[float64]) bool { return p.Sum == want }) {
			t.Errorf("%s is %+v, want %v s", name, all[name].Data, want)
		}
	}
}

// Thousands of connections come and go while two collect: each collection has all that there
// are, and no more than two hundred by name.
//
// Guarantees: G-0047.8
func TestCollectingWhileConnectionsComeAndGo(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	var round atomic.Int64
	defer told.Watch(func() iter.Seq[telemetry.Sample] {
		from := int(round.Add(1)) * 500
		return func(yield func(telemetry.Sample) bool) {
			for id := range 1000 {
				sample := telemetry.Sample{Name: strconv.Itoa(from + id), Conn: &telemetry.ConnSample{State: "ready", Calls: 1, InFlight: 1}}
				if !yield(sample) {
					return
				}
			}
		}
	})()
	s := &site{reader: reader}
	var collectors sync.WaitGroup
	for range 2 {
		collectors.Go(func() {
			for range 10 {
				all := s.collect(t)
				sum := 0.0
				for _, n := range numbers(all["bowline.calls.in_flight"], "bowline.conn") {
					sum += n
				}
				if up := numbers(all["bowline.conn.up"], "bowline.conn"); len(up) > 200 || sum != 1000 {
					t.Errorf("%d connections have series of their own, and %v calls are in flight", len(up), sum)
				}
			}
		})
	}
	collectors.Wait()
}

// What is not watched any more is not read.
func TestForget(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	forget := told.Watch(func() iter.Seq[telemetry.Sample] { asked++; return slices.Values([]telemetry.Sample(nil)) })
	for range 2 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		forget()
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}
