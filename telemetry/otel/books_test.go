package otel_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A witness counts what callers were told, by the words of error.type, and by
// bowline.cause.
type witness struct {
	mu      sync.Mutex
	ended   map[string]uint64
	byCause map[string]float64
}

func (w *witness) note(result *protocol.CallToolResult, err error) {
	kind, cause := "", "answered"
	var call *conn.CallError
	switch {
	case err == nil && result.IsError:
		kind = "tool_error"
	case errors.As(err, &call):
		cause = call.Cause.String()
		kind = map[conn.Cause]string{conn.TimedOut: "timeout", conn.Cancelled: "cancelled", conn.LinkLost: "link_lost", conn.Refused: "refused"}[call.Cause]
	case err != nil:
		kind, cause = err.Error(), ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[kind]++
	w.byCause[cause]++
}

// A crowded program has several connections, which are killed while many call.
type crowded struct {
	*site
	sessions []*client.Session
	calls    witness
	served   atomic.Uint64 // calls of tools that a server has got

	mu      sync.Mutex
	sampled map[string]float64 // the calls that each connection had made at its last sample
}

// samples notes how many calls each connection has made at the time it is sampled.
func (c *crowded) samples(of *client.Client) func() iter.Seq[telemetry.Sample] {
	return func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			for sample := range of.Samples() {
				c.mu.Lock()
				c.sampled[sample.Name] = float64(sample.Conn.Calls)
				c.mu.Unlock()
				if !yield(sample) {
					return
				}
			}
		}
	}
}

func newCrowded(t *testing.T) *crowded {
	c := &crowded{
		site: &site{reader: metric.NewManualReader()}, sampled: make(map[string]float64),
		calls: witness{ended: map[string]uint64{}, byCause: map[string]float64{}},
	}
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(c.reader))})
	if err != nil {
		t.Fatal(err)
	}
	peer := newServer(told, &c.logs, func() {}, func(ctx context.Context) {
		server.RequestFrom(ctx).Conn().Stop()
		<-ctx.Done()
	}, c.serves)
	var clients []*client.Client
	c.ended = sync.OnceFunc(func() {
		for _, all := range clients {
			all.Close(context.Background())
		}
		peer.Close(context.Background())
	})
	t.Cleanup(c.ended)
	t.Cleanup(told.Watch(peer.Samples))
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		all := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
			ProtocolVersion: version, Middleware: []client.Middleware{told.Client()},
			Conn: conn.Tuning{Name: version, Hooks: c.hooks(told), BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond},
		})
		clients = append(clients, all)
		t.Cleanup(told.Watch(c.samples(all)))
		for range 3 {
			session, err := all.Connect(t.Context(), inmem.New(peer.Accept, inmem.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			c.sessions = append(c.sessions, session)
		}
	}
	return c
}

// serves counts the calls that a server has got.
func (c *crowded) serves(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if r.Method == protocol.MethodCallTool {
			c.served.Add(1)
		}
		return next(ctx, r)
	}
}

// call makes calls of all sorts. Some kill their server.
func (c *crowded) call(ctx context.Context, session *client.Session, times int) {
	for i := range times {
		options, tool := client.CallOptions{WaitForReady: i%3 == 0, Retries: i % 2}, "add"
		switch {
		case i%20 == 7:
			tool = "crash"
		case i%5 == 1:
			tool = "fail"
		case i%10 == 4:
			tool, options.Timeout = "hang", time.Millisecond
		case i%10 == 8:
			leaving, leave := context.WithCancel(ctx)
			leaves := time.AfterFunc(time.Millisecond, leave)
			c.calls.note(session.With(options).CallTool(leaving, &protocol.CallToolParams{Name: "hang"}))
			leaves.Stop()
			leave()
			continue
		}
		c.calls.note(session.With(options).CallTool(ctx, &protocol.CallToolParams{Name: tool}))
	}
}

// made is how many calls each connection has made.
func (c *crowded) made() map[string]float64 {
	made := make(map[string]float64)
	for _, session := range c.sessions {
		made[session.Name()] = float64(session.Conn().Stats().Calls)
	}
	return made
}

// checkBooks collects, and returns how many calls have ended. The calls that have ended
// and those in flight are those made when the connection was sampled, which is between
// the two moments at which made was asked. Only one goroutine at a time may call it.
func (c *crowded) checkBooks(t *testing.T) (all map[string]metricdata.Metrics, ended map[string]float64) {
	before := c.made()
	all = c.collect(t)
	after := c.made()
	ended = numbers(all["bowline.calls"], "bowline.conn")
	inFlight := numbers(all["bowline.calls.in_flight"], "bowline.conn")
	for name := range before {
		made := c.sampled[name]
		if ended[name]+inFlight[name] != made || made < before[name] || made > after[name] {
			t.Errorf("%s: %v calls have ended and %v are in flight, of %v, when between %v and %v were made", name, ended[name], inFlight[name], made, before[name], after[name])
		}
	}
	return all, ended
}

// While connections are killed under load, the books balance at every collection, and
// counts never fall. At the end the histograms of both sides have counted each call once: as
// callers were told that it ended, and as a server has got it.
//
// Guarantees: G-0047.3
func TestMetricsAddUpWhileConnectionsAreKilled(t *testing.T) {
	c := newCrowded(t)
	var callers sync.WaitGroup
	for _, session := range c.sessions {
		for range 4 {
			callers.Go(func() { c.call(t.Context(), session, 100) })
		}
	}
	over := make(chan struct{})
	go func() { callers.Wait(); close(over) }()
	before := make(map[string]float64)
	for collections := 0; ; collections++ {
		select {
		case <-over:
			if collections < 5 {
				t.Errorf("only %d collections", collections)
			}
			c.checkEnd(t)
			return
		default:
		}
		_, ended := c.checkBooks(t)
		for name, n := range before {
			if ended[name] < n {
				t.Fatalf("%s: %v calls have ended, and then %v", name, n, ended[name])
			}
		}
		before = ended
	}
}

func (c *crowded) checkEnd(t *testing.T) {
	all, ended := c.checkBooks(t)
	if made := c.made(); !maps.Equal(made, filtered(ended, made)) {
		t.Errorf("%v calls have ended of %v", ended, made)
	}
	told := make(map[string]uint64)
	for _, p := range all["mcp.client.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		kind, _ := p.Attributes.Value("error.type")
		told[kind.AsString()] += p.Count
	}
	if !maps.Equal(told, c.calls.ended) {
		t.Errorf("callers were told %v, and counted are %v", c.calls.ended, told)
	}
	for _, kind := range []string{"", "tool_error", "timeout", "cancelled", "link_lost", "refused"} {
		if c.calls.ended[kind] == 0 {
			t.Errorf("no call has ended as %q: %v", kind, c.calls.ended)
		}
	}
	attempts, retries := uint64(0), 0.0
	for _, p := range all["bowline.call.attempt.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		attempts += p.Count
	}
	for name := range c.made() {
		retries += numbers(all["bowline.call.retries"], "bowline.conn")[name]
	}
	total := 0.0
	for _, n := range ended {
		total += n
	}
	if float64(attempts) != total+retries {
		t.Errorf("%d attempts of %v calls with %v retries", attempts, total, retries)
	}
	handshakes := numbers(all["bowline.calls"], "bowline.cause")["answered"] - c.calls.byCause["answered"]
	if handshakes < float64(len(c.sessions)) {
		t.Errorf("%v handshakes of %d connections", handshakes, len(c.sessions))
	}
	for cause, n := range numbers(all["bowline.calls"], "bowline.cause") {
		if cause != "answered" && n < c.calls.byCause[cause] {
			t.Errorf("%v calls have ended as %q, and callers of %v were told so", n, cause, c.calls.byCause[cause])
		}
	}
	if losses := numbers64(all["bowline.conn.losses"]); losses == 0 {
		t.Error("no connection was lost")
	}
	c.ended() // returns after the handlers
	served := uint64(0)
	for _, p := range c.collect(t)["mcp.server.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		if method, _ := p.Attributes.Value("mcp.method.name"); method.AsString() == protocol.MethodCallTool {
			served += p.Count
		}
	}
	if got := c.served.Load(); served != got || got == 0 {
		t.Errorf("servers have got %d calls, and counted are %d", got, served)
	}
}

// filtered are the entries of the names.
func filtered(from, names map[string]float64) map[string]float64 {
	found := make(map[string]float64)
	for name := range names {
		found[name] = from[name]
	}
	return found
}

func numbers64(m metricdata.Metrics) (sum int64) {
	data, ok := m.Data.(metricdata.Sum[int64])
	if !ok {
		panic(fmt.Sprintf("%s is %T", m.Name, m.Data))
	}
	for _, p := range data.DataPoints {
		sum += p.Value
	}
	return sum
}
