package conn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// started starts an acceptor, and returns what its end will be told.
func started(t *testing.T, ctx context.Context, link transport.Link, o conn.Options) (*conn.Conn, <-chan error) {
	t.Helper()
	c, over := conn.Accept(link, o), make(chan error, 1)
	if err := c.Start(ctx, func(err error) { over <- err }); err != nil {
		t.Fatal(err)
	}
	return c, over
}

// TestStartedConnHasNoGoroutineWhileIdle has many Conns serve a call, and
// counts goroutines then.
//
// Guarantees: G-0001.13
func TestStartedConnHasNoGoroutineWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		before := goroutines()
		var ends []<-chan error
		var links []transport.Link
		for range many {
			ours, theirs := inmem.Pipe(inmem.Options{})
			_, over := started(t, t.Context(), theirs, conn.Options{Handler: handler{"m": echo}})
			peer := &answers{frames: make(chan string, 1)}
			ours.Bind(peer)
			ours.Grant(transport.Main, 1)
			if err := ours.Send(transport.Outbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[7]}`)}); err != nil {
				t.Fatal(err)
			}
			if got, want := <-peer.frames, `{"jsonrpc":"2.0","id":1,"result":[7]}`; got != want {
				t.Fatalf("the answer is %s", got)
			}
			ends, links = append(ends, over), append(links, ours)
		}
		advance(110 * time.Millisecond)
		if now := goroutines(); now != before {
			t.Errorf("%d idle Conns have %d goroutines", many, now-before)
		}
		for i, link := range links {
			link.Close(time.Second)
			if err := <-ends[i]; err != nil {
				t.Error(err)
			}
		}
	})
}

// goroutines counts those of the bubble the test runs in. Others of the process
// come and go.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("synctest bubble "))
}

// answers keeps the frames that come.
type answers struct{ frames chan string }

func (a *answers) Receive(in transport.Inbound)               { a.frames <- string(in.Frame) }
func (*answers) StreamOpened(transport.Stream, transport.Tag) {}
func (*answers) StreamLost(transport.StreamLoss)              {}
func (*answers) Writable()                                    {}
func (*answers) Failed(transport.Failure)                     {}
func (*answers) Ended()                                       {}
func (*answers) Lost(transport.Loss)                          {}

// A started Conn keeps its deadlines, without a goroutine to wait for them.
//
// Guarantees: G-0001.13
func TestStartedConnKeepsItsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(script)
		c, over := started(t, t.Context(), s, conn.Options{})
		_, err := c.Call(t.Context(), conn.Request{Method: "m", Timeout: time.Hour})
		if !errors.Is(err, conn.ErrTimedOut) {
			t.Errorf("the call: %v", err)
		}
		c.Stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		<-c.Done()
	})
}

// A watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	watchers atomic.Int32
}

func (*watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(ended func()) (stop func() bool) {
	w.watchers.Add(1)
	return func() bool { w.watchers.Add(-1); return true }
}

// A Conn that has ended is not kept by a context that goes on.
//
// Guarantees: G-0001.13
func TestEndedConnLeavesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &watchedContext{Context: t.Context()}
		c, over := started(t, ctx, new(script), conn.Options{})
		if n := ctx.watchers.Load(); n != 1 {
			t.Errorf("%d watch the context of a started Conn", n)
		}
		c.Stop()
		<-over
		if n := ctx.watchers.Load(); n != 0 {
			t.Errorf("%d watch the context of an ended Conn", n)
		}
	})
}

// Guarantees: G-0001.13
func TestStartedConnStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, over := started(t, ctx, new(script), conn.Options{})
		if err := c.Start(t.Context(), func(error) {}); !errors.Is(err, conn.ErrRunning) {
			t.Errorf("a second Start: %v", err)
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if err := c.Start(t.Context(), func(error) {}); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("a Start after the end: %v", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close after the end: %v", err)
		}
	})
}

// Guarantees: G-0001.11, G-0001.13
func TestStartedConnSurvivesNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { panic("send") }}
		c, over := started(t, t.Context(), s, conn.Options{})
		_, err := c.Call(t.Context(), conn.Request{Method: "m"})
		if err == nil || conn.NotExecuted(err) {
			t.Errorf("the call: %v", err)
		}
		if panicked := new(conn.PanicError); !errors.As(<-over, &panicked) {
			t.Error("the panic was not told")
		}
		<-c.Done()
	})
}

// TestNotificationsOfARequestGoOnItsStream has a handler tell of its progress.
//
// Guarantees: G-0019.6
func TestNotificationsOfARequestGoOnItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(script)
		c, over := started(t, t.Context(), s, conn.Options{Handler: handler{"m": tell}})
		s.receiver.StreamOpened(4, 0)
		s.receiver.Receive(transport.Inbound{Stream: 4, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":"x","method":"m"}`)})
		synctest.Wait()
		want := []transport.Outbound{
			{Stream: 4, Frame: []byte(`{"jsonrpc":"2.0","method":"told"}`)},
			{Stream: 4, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":"x","result":null}`)},
		}
		for i, o := range s.outbound() {
			if i >= len(want) || o.Stream != want[i].Stream || o.Last != want[i].Last || string(o.Frame) != string(want[i].Frame) {
				t.Errorf("frame %d is %+v %s", i, o, o.Frame)
			}
		}
		if len(s.outbound()) != len(want) {
			t.Errorf("%d frames were sent", len(s.outbound()))
		}
		c.Stop()
		<-over
	})
}

func tell(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return nil, in.Notify(ctx, "told", nil)
}

// A request that came before Start does not keep it: it is served beside.
//
// Guarantees: G-0001.13
func TestStartDoesNotServeOnItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := inmem.Pipe(inmem.Options{})
		ours.Bind(&answers{frames: make(chan string, 1)})
		ours.Grant(transport.Main, 1)
		if err := ours.Send(transport.Outbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)}); err != nil {
			t.Fatal(err)
		}
		c, over := started(t, t.Context(), theirs, conn.Options{Handler: handler{"m": hang}})
		synctest.Wait()
		c.Stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// Many requests at once are served beside one another, and the goroutines that
// serve them end.
//
// Guarantees: G-0001.13
func TestStartedConnServesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		before, held := goroutines(), make(chan struct{})
		ours, theirs := inmem.Pipe(inmem.Options{})
		wait := func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-held; return nil, nil }
		_, over := started(t, t.Context(), theirs, conn.Options{Handler: handler{"m": wait}, Credit: many})
		peer := &answers{frames: make(chan string, many)}
		ours.Bind(peer)
		ours.Grant(transport.Main, many)
		for id := range many {
			frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, id)
			if err := ours.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if now := goroutines(); now-before > many+1 { // the loop's own
			t.Errorf("%d goroutines serve %d requests", now-before, many)
		}
		close(held)
		for range many {
			<-peer.frames
		}
		advance(110 * time.Millisecond)
		if now := goroutines(); now > before {
			t.Errorf("%d goroutines are left", now-before)
		}
		ours.Close(time.Second)
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// Guarantees: G-0001.16
func TestRunHasOneGoroutineWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		p := connect(t, handler{"m": echo}, conn.Options{})
		p.ready()
		wantGoroutines := func(when string, want int) {
			t.Helper()
			if synctest.Wait(); goroutines()-before != want {
				t.Errorf("%s: %d goroutines", when, goroutines()-before)
			}
		}
		for range 3 {
			for range 2 { // a conversation
				advance(90 * time.Millisecond)
				got, err := p.client.Call(t.Context(), conn.Request{Method: "m", Params: json.RawMessage(`[7]`)})
				if err != nil || string(got) != `[7]` {
					t.Fatalf("got %s, %v", got, err)
				}
				advance(90 * time.Millisecond)
				wantGoroutines("90 ms after a call", 3) // one waits for the next request
			}
			advance(20 * time.Millisecond)
			wantGoroutines("110 ms after a call", 2)
			advance(time.Hour)
			wantGoroutines("an hour later", 2)
		}
	})
}

// Guarantees: G-0001.16
func TestRestingConnKeepsItsDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		r := scripted(t, &script{}, conn.Options{})
		began := time.Now()
		_, err := r.Call(t.Context(), conn.Request{Method: "m", Timeout: time.Hour})
		if !errors.Is(err, conn.ErrTimedOut) || time.Since(began) != time.Hour {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if synctest.Wait(); goroutines()-before != 1 {
			t.Errorf("%d goroutines after the deadline", goroutines()-before)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// A context that has ended stops a Conn at any time: before Run, while it is
// busy, and while it rests.
func TestRunEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, busy := range []time.Duration{0, time.Millisecond, time.Hour} {
			ctx, cancel := context.WithCancelCause(t.Context())
			c, ended, why := conn.New(opens(&script{}), conn.Options{}), make(chan error, 1), errors.New("enough")
			if busy == 0 {
				cancel(why)
			}
			go func() { ended <- c.Run(ctx) }()
			advance(max(busy, 1))
			cancel(why)
			if err := <-ended; err != nil || !errors.Is(c.Status().Reason, why) {
				t.Errorf("after %v: %v, %v", busy, err, c.Status().Reason)
			}
		}
	})
}

// Short bursts of calls come just when both loops park, over and over. Each call
// is answered, and both Conns park again.
//
// Guarantees: G-0001.13, G-0001.16
func TestCallsThatComeWhileTheLoopParks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		p := connect(t, handler{"m": echo}, conn.Options{})
		p.ready()
		for round := range 300 {
			<-time.NewTimer(100*time.Millisecond + time.Duration(round%3-1)).C // the tick comes now, has come, or will come
			var callers sync.WaitGroup
			for range 1 + round%4 {
				callers.Go(func() {
					got, err := p.client.Call(t.Context(), conn.Request{Method: "m", Params: json.RawMessage(`[7]`)})
					if err != nil || string(got) != `[7]` {
						t.Errorf("round %d: got %s, %v", round, got, err)
					}
				})
			}
			callers.Wait()
		}
		advance(time.Second)
		if now := goroutines() - before; now != 2 { // each waits in Run
			t.Errorf("%d goroutines are left", now)
		}
	})
}
