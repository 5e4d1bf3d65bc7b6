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

// startAcceptor starts an acceptor, and returns it with the channel for the error that it ends with.
func startAcceptor(t *testing.T, ctx context.Context, link transport.Link, o conn.Options) (*conn.Conn, <-chan error) {
	t.Helper()
	c, ended := conn.Accept(link, o), make(chan error, 1)
	if err := c.Start(ctx, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	return c, ended
}

// Idle Conns that were begun with Start have no goroutine.
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
			_, ended := startAcceptor(t, t.Context(), theirs, conn.Options{Handler: handler{"m": echo}})
			peer := &answers{frames: make(chan string, 1)}
			ours.Bind(peer)
			ours.Grant(transport.Main, 1)
			if err := ours.Send(transport.Outbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[7]}`)}); err != nil {
				t.Fatal(err)
			}
			if got, want := <-peer.frames, `{"jsonrpc":"2.0","id":1,"result":[7]}`; got != want {
				t.Fatalf("the answer is %s, want %s", got, want)
			}
			ends, links = append(ends, ended), append(links, ours)
		}
		advance(110 * time.Millisecond)
		if now := goroutines(); now != before {
			t.Errorf("%d idle Conns have %d goroutines, want none", many, now-before)
		}
		for i, link := range links {
			link.Close(time.Second)
			if err := <-ends[i]; err != nil {
				t.Error(err)
			}
		}
	})
}

// goroutines returns how many goroutines the test's bubble has. Other goroutines of the process come and
// go.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("synctest bubble "))
}

// answers is a receiver that passes on the frames that come in.
type answers struct{ frames chan string }

func (a *answers) Receive(in transport.Inbound)               { a.frames <- string(in.Frame) }
func (*answers) StreamOpened(transport.Stream, transport.Tag) {}
func (*answers) StreamLost(transport.StreamLoss)              {}
func (*answers) Writable()                                    {}
func (*answers) Failed(transport.Failure)                     {}
func (*answers) Ended()                                       {}
func (*answers) Lost(transport.Loss)                          {}

// A Conn that was begun with Start keeps its deadlines without a goroutine.
//
// Guarantees: G-0001.13
func TestStartedConnKeepsItsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(script)
		c, ended := startAcceptor(t, t.Context(), s, conn.Options{})
		_, err := c.Call(t.Context(), conn.Request{Method: "m", Timeout: time.Hour})
		if !errors.Is(err, conn.ErrTimedOut) {
			t.Errorf("the call: %v, want ErrTimedOut", err)
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-c.Done()
	})
}

// A watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	watchers atomic.Int32
}

func (*watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(ended func()) (stop func() bool) {
	w.watchers.Add(1)
	return func() bool { w.watchers.Add(-1); return true }
}

// An ended Conn no longer waits for the end of its context, so the context does not keep it in memory.
//
// Guarantees: G-0001.13
func TestEndedConnLeavesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &watchedContext{Context: t.Context()}
		c, ended := startAcceptor(t, ctx, new(script), conn.Options{})
		if n := ctx.watchers.Load(); n != 1 {
			t.Errorf("%d functions wait for the context of a started Conn, want 1", n)
		}
		c.Stop()
		<-ended
		if n := ctx.watchers.Load(); n != 0 {
			t.Errorf("%d functions wait for the context of an ended Conn, want none", n)
		}
	})
}

// A Conn that was begun with Start stops when its context ends, and cannot be started twice.
//
// Guarantees: G-0001.13
func TestStartedConnStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, ended := startAcceptor(t, ctx, new(script), conn.Options{})
		if err := c.Start(t.Context(), func(error) {}); !errors.Is(err, conn.ErrRunning) {
			t.Errorf("a second Start: %v, want ErrRunning", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Start(t.Context(), func(error) {}); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("a Start after the end: %v, want ErrNotRunning", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close after the end: %v, want no error", err)
		}
	})
}

// A panic of the loop ends a Conn that was begun with Start, which gets it as the error of its end.
//
// Guarantees: G-0001.11, G-0001.13
func TestPanicEndsAStartedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { panic("send") }}
		c, ended := startAcceptor(t, t.Context(), s, conn.Options{})
		_, err := c.Call(t.Context(), conn.Request{Method: "m"})
		if err == nil || conn.NotExecuted(err) {
			t.Errorf("the call: %v, want an error without NotExecuted", err)
		}
		if panicked := new(conn.PanicError); !errors.As(<-ended, &panicked) {
			t.Error("the Conn ended without a PanicError")
		}
		<-c.Done()
	})
}

// A notification that a handler sends through its Incoming goes out on the stream of its request.
//
// Guarantees: G-0019.6
func TestNotificationsOfARequestGoOnItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(script)
		c, ended := startAcceptor(t, t.Context(), s, conn.Options{Handler: handler{"m": notifyPeer}})
		s.receiver.StreamOpened(4, 0)
		s.receiver.Receive(transport.Inbound{Stream: 4, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":"x","method":"m"}`)})
		synctest.Wait()
		want := []transport.Outbound{
			{Stream: 4, Frame: []byte(`{"jsonrpc":"2.0","method":"noted"}`)},
			{Stream: 4, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":"x","result":null}`)},
		}
		for i, o := range s.outbound() {
			if i >= len(want) || o.Stream != want[i].Stream || o.Last != want[i].Last || string(o.Frame) != string(want[i].Frame) {
				t.Errorf("frame %d is %+v %s, want those of %+v", i, o, o.Frame, want)
			}
		}
		if len(s.outbound()) != len(want) {
			t.Errorf("%d frames were sent, want %d", len(s.outbound()), len(want))
		}
		c.Stop()
		<-ended
	})
}

func notifyPeer(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return nil, in.Notify(ctx, "noted", nil)
}

// Start does not run the handler of a request that has already come in: it returns at once.
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
		c, ended := startAcceptor(t, t.Context(), theirs, conn.Options{Handler: handler{"m": hang}})
		synctest.Wait()
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Requests are served concurrently, each on one goroutine, and those goroutines end afterwards.
//
// Guarantees: G-0001.13
func TestStartedConnServesConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		before, held := goroutines(), make(chan struct{})
		ours, theirs := inmem.Pipe(inmem.Options{})
		wait := func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-held; return nil, nil }
		_, ended := startAcceptor(t, t.Context(), theirs, conn.Options{Handler: handler{"m": wait}, Tuning: conn.Tuning{Credit: many}})
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
		if now := goroutines(); now-before > many+1 { // one more for the loop
			t.Errorf("%d goroutines serve %d requests, want %d at most", now-before, many, many+1)
		}
		close(held)
		for range many {
			<-peer.frames
		}
		advance(110 * time.Millisecond)
		if now := goroutines(); now > before {
			t.Errorf("%d goroutines are left, want none", now-before)
		}
		ours.Close(time.Second)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A Conn that runs has one goroutine while it is idle, the one in Run.
//
// Guarantees: G-0001.16
func TestRunHasOneGoroutineWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		p := connect(t, handler{"m": echo}, conn.Options{})
		p.ready()
		wantGoroutines := func(when string, want int) {
			t.Helper()
			if synctest.Wait(); goroutines()-before != want {
				t.Errorf("%s: %d goroutines, want %d", when, goroutines()-before, want)
			}
		}
		for range 3 {
			for range 2 { // calls before the loop parks
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

// A Conn that has parked during a call still ends it at its deadline.
//
// Guarantees: G-0001.16
func TestParkedConnKeepsItsDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		r := scripted(t, &script{}, conn.Options{})
		began := time.Now()
		_, err := r.Call(t.Context(), conn.Request{Method: "m", Timeout: time.Hour})
		if !errors.Is(err, conn.ErrTimedOut) || time.Since(began) != time.Hour {
			t.Errorf("after %v: %v; want ErrTimedOut after 1h", time.Since(began), err)
		}
		if synctest.Wait(); goroutines()-before != 1 {
			t.Errorf("%d goroutines after the deadline, want 1", goroutines()-before)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// Run returns when its context ends: before Run, while the Conn is busy, and while it is parked.
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
				t.Errorf("after %v: %v, %v; want no error and the reason %v", busy, err, c.Status().Reason, why)
			}
		}
	})
}

// Calls that come at the moment when both loops park are answered, and both loops park again.
//
// Guarantees: G-0001.13, G-0001.16
func TestCallsThatComeWhileTheLoopParks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		p := connect(t, handler{"m": echo}, conn.Options{})
		p.ready()
		for round := range 300 {
			<-time.NewTimer(100*time.Millisecond + time.Duration(round%3-1)).C // just before, at, or after the tick that parks
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
		if now := goroutines() - before; now != 2 { // one in each Run
			t.Errorf("%d goroutines are left, want 2", now)
		}
	})
}
