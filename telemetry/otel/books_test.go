package otel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
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
}

func newCrowded(t *testing.T) *crowded {
	c := &crowded{site: &site{reader: metric.NewManualReader()}, calls: witness{ended: map[string]uint64{}, byCause: map[string]float64{}}}
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(c.reader))})
	if err != nil {
		t.Fatal(err)
	}
	peer := newServer(told, &c.logs, func() {}, func(ctx context.Context) {
		server.RequestFrom(ctx).Conn().Stop()
		<-ctx.Done()
	})
	t.Cleanup(func() { peer.Close(context.Background()) })
	t.Cleanup(told.Watch(peer.Samples))
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		all := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
			ProtocolVersion: version, Middleware: []client.Middleware{told.Client()},
			Conn: conn.Options{Name: version, Hooks: c.hooks(told), BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond},
		})
		t.Cleanup(func() { all.Close(context.Background()) })
		t.Cleanup(told.Watch(all.Samples))
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
// and those in flight are those made: at one moment between the two at which made was
// asked, if calls are being made.
func (c *crowded) checkBooks(t *testing.T) (all map[string]metricdata.Metrics, ended map[string]float64) {
	before := c.made()
	all = c.collect(t)
	after := c.made()
	ended = numbers(all["bowline.calls"], "bowline.conn")
	inFlight := numbers(all["bowline.calls.in_flight"], "bowline.conn")
	for name := range before {
		if sum := ended[name] + inFlight[name]; sum < before[name] || sum > after[name] {
			t.Errorf("%s: %v calls have ended and %v are in flight, when between %v and %v were made", name, ended[name], inFlight[name], before[name], after[name])
		}
	}
	return all, ended
}

// While connections are killed under load, the books balance at every collection, and
// counts never fall. At the end histograms have counted what callers were told.
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
