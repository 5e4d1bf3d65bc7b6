package proptest

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// NoLeaks checks that a Conn keeps nothing of calls that have ended, however they ended.
// No call is pending after its end, or while the Conn is not ready. An idle Conn has as
// many goroutines as before its first call. The memory for calls that may still be
// answered late is bounded, and freed after its time.
//
// The transport must be as for Correlation. NoLeaks measures the memory of the whole
// process, so do not run it in parallel with other tests. In real time it checks only
// that no goroutine is left at the end.
//
// Guarantees: G-0003.1, G-0005.3, G-0005.4
func NoLeaks(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	t.Run("calls and goroutines", func(t *testing.T) {
		o.search(t, func(rt *rapid.T) {
			plan := drawPlan(rt, o, answerFaults...)
			steps := drawHistory(rt, o, o.Concurrent, anyCall(o))
			o.history(rt, from, plan, func(w *world) { w.leavesNothing(steps) })
		})
	})
	if !o.RealTime {
		t.Run("memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { forgets(t, o) })
		})
	}
}

// leavesNothing plays a history, and compares the number of goroutines before
// it and after its end.
func (w *world) leavesNothing(steps []step) {
	w.t.Helper()
	w.ready()
	before, _ := w.bubbled()
	w.play(steps)
	w.finish()
	if w.o.RealTime {
		return // in real time it is unknown when the Conn is idle; what is left at the end is checked later
	}
	w.pass(w.o.forgotten()) // until then, every handler of the peer has returned, too
	w.ready()
	nothingKept(w.conn.Stats(), w.fatalf)
	if after, stacks := w.bubbled(); after > before {
		w.fatalf("%d goroutines at rest, and %d before the first call:\n%s", after, before, stacks)
	}
}

// nothingKept checks that an idle or ended Conn has no pending call, and nothing
// that belongs to one.
func nothingKept(stats conn.Stats, blame func(format string, args ...any)) {
	if pending := stats.Calls - stats.Ended(); pending != 0 {
		blame("%d calls are pending at rest", pending)
	}
	if stats.Depths != (conn.Depths{}) {
		blame("at rest there is left: %+v", stats.Depths)
	}
}

// bubbled counts the goroutines of this synctest bubble, including those of the
// peer. The first line of each goroutine's stack contains the number of the
// bubble.
func (w *world) bubbled() (n int, stacks []byte) {
	if w.o.RealTime {
		return 0, nil
	}
	stacks = everyStack() // the stack of this goroutine comes first
	bubble := bubbleName.Find(stacks)
	if bubble == nil {
		w.fatalf("no goroutine is in a bubble:\n%s", stacks)
	}
	return bytes.Count(stacks, bubble), stacks
}

// everyStack returns the stacks of all goroutines.
func everyStack() []byte {
	for size := 32 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size {
			return stacks[:n]
		}
	}
}

var bubbleName = regexp.MustCompile(`synctest bubble \d+[\],]`)

// forgotten is longer than a Conn keeps anything of a call that has ended: the
// lifetime of a tombstone and the interval of the sweeps (ADR-0005).
func (o Options) forgotten() time.Duration {
	request, init := cmp.Or(o.Conn.RequestTimeout, 30*time.Second), cmp.Or(o.Conn.InitTimeout, 10*time.Second)
	backoff, sweep := cmp.Or(o.Conn.BackoffMax, 30*time.Second), cmp.Or(o.Conn.TombstoneSweep, time.Minute)
	return request + init + backoff + 2*sweep + 10*time.Second
}

// forgets abandons more calls than a Conn remembers, to a peer that answers none of them. It
// measures the memory that is kept immediately afterwards, and after the tombstones have
// expired.
func forgets(t *testing.T, o Options) {
	const (
		callers, each = 50, 500
		remembered    = 768 << 10 // the limit for 4,096 calls; 25,000 calls need more than twice as much
		rest          = 64 << 10
		maxTombstones = 4096 // ADR-0005
	)
	c := conn.New(opening(func(context.Context) (transport.Link, error) { return new(mute), nil }), conn.Options{})
	var running, calling sync.WaitGroup
	running.Go(func() { _ = c.Run(context.Background()) })
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := weigh()
	for range callers {
		calling.Go(func() {
			for range each {
				_, _ = c.Call(context.Background(), conn.Request{Method: "m", Timeout: time.Millisecond}) // the outcome is read from Stats
			}
		})
	}
	calling.Wait()
	remain := c.Stats().Depths.Tombstones
	kept := weigh() - before
	forgotten := time.NewTimer(o.forgotten())
	<-forgotten.C
	left := weigh() - before
	nothingKept(c.Stats(), t.Errorf)
	if n := c.Stats().Settled[conn.TimedOut][conn.Unknown]; n != callers*each {
		t.Errorf("%d calls timed out, of %d", n, callers*each)
	}
	if remain == 0 || remain > maxTombstones {
		t.Errorf("%d calls that have ended are remembered, at most %d may be", remain, maxTombstones)
	}
	if kept > remembered {
		t.Errorf("%d bytes are kept of %d calls that have ended", kept, callers*each)
	}
	if left > rest {
		t.Errorf("%d bytes are left of calls that were to be forgotten; %d were kept", left, kept)
	}
	c.Stop()
	running.Wait()
}

// weigh returns how many bytes of the heap are in use.
func weigh() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a second collection also frees the contents of a sync.Pool
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// mute is a link to a peer that accepts all frames and sends none.
type mute struct {
	receiver transport.Receiver
	lost     sync.Once
}

func (m *mute) Bind(r transport.Receiver)     { m.receiver = r }
func (m *mute) Send(transport.Outbound) error { return nil }
func (m *mute) Grant(transport.Stream, int)   {}
func (m *mute) Resume(transport.Stream)       {}
func (m *mute) End(transport.Stream)          {}

func (m *mute) Close(time.Duration) error {
	m.lost.Do(func() { m.receiver.Lost(transport.Loss{Reason: transport.ErrClosed}) })
	return nil
}
