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
			o.history(rt, from, plan, func(h *harness) { h.checkNothingLeft(steps) })
		})
	})
	if !o.RealTime {
		t.Run("memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkMemory(t, o) })
		})
	}
}

// checkNothingLeft plays a history, and compares the number of goroutines before
// it and after its end.
func (h *harness) checkNothingLeft(steps []step) {
	h.t.Helper()
	h.awaitReady()
	before, _ := h.countGoroutines()
	h.play(steps)
	h.finishCalls()
	if h.o.RealTime {
		return // in real time it is unknown when the Conn is idle; what is left at the end is checked later
	}
	h.advance(h.o.retention()) // until then, every handler of the peer has returned, too
	h.awaitReady()
	checkNothingKept(h.conn.Stats(), h.fatalf)
	if after, stacks := h.countGoroutines(); after > before {
		h.fatalf("%d goroutines when the Conn is idle, and %d before the first call:\n%s", after, before, stacks)
	}
}

// checkNothingKept checks that an idle or ended Conn has no pending call, and nothing
// that belongs to one.
func checkNothingKept(stats conn.Stats, fail func(format string, args ...any)) {
	if pending := stats.Calls - stats.Ended(); pending != 0 {
		fail("%d calls are pending when the Conn is idle", pending)
	}
	if stats.Depths != (conn.Depths{}) {
		fail("the Conn is idle, and has kept: %+v", stats.Depths)
	}
}

// countGoroutines counts the goroutines of this synctest bubble, including those of the
// peer. The first line of each goroutine's stack contains the number of the
// bubble.
func (h *harness) countGoroutines() (n int, stacks []byte) {
	if h.o.RealTime {
		return 0, nil
	}
	stacks = allStacks() // the stack of this goroutine comes first
	bubble := bubblePattern.Find(stacks)
	if bubble == nil {
		h.fatalf("no goroutine is in a bubble:\n%s", stacks)
	}
	return bytes.Count(stacks, bubble), stacks
}

// allStacks returns the stacks of all goroutines.
func allStacks() []byte {
	for size := 32 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size {
			return stacks[:n]
		}
	}
}

var bubblePattern = regexp.MustCompile(`synctest bubble \d+[\],]`)

// retention is longer than a Conn keeps anything of a call that has ended: the
// lifetime of a tombstone and the interval of the sweeps (ADR-0005).
func (o Options) retention() time.Duration {
	request, init := cmp.Or(o.Conn.RequestTimeout, 30*time.Second), cmp.Or(o.Conn.InitTimeout, 10*time.Second)
	backoff, sweep := cmp.Or(o.Conn.BackoffMax, 30*time.Second), cmp.Or(o.Conn.TombstoneSweep, time.Minute)
	return request + init + backoff + 2*sweep + 10*time.Second
}

// checkMemory abandons more calls than a Conn remembers, to a peer that answers none of them. It
// measures the memory that is kept immediately afterwards, and after the tombstones have
// expired.
func checkMemory(t *testing.T, o Options) {
	const (
		callers, each = 50, 500
		maxKept       = 768 << 10 // the limit for 4,096 calls; 25,000 calls need more than twice as much
		maxLeft       = 64 << 10
		maxTombstones = 4096 // ADR-0005
	)
	c := conn.New(opening(func(context.Context) (transport.Link, error) { return new(silentLink), nil }), conn.Options{})
	var running, calling sync.WaitGroup
	running.Go(func() { _ = c.Run(context.Background()) })
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := heapInUse()
	for range callers {
		calling.Go(func() {
			for range each {
				_, _ = c.Call(context.Background(), conn.Request{Method: "m", Timeout: time.Millisecond}) // the outcome is read from Stats
			}
		})
	}
	calling.Wait()
	tombstones := c.Stats().Depths.Tombstones
	kept := heapInUse() - before
	expiry := time.NewTimer(o.retention())
	<-expiry.C
	left := heapInUse() - before
	checkNothingKept(c.Stats(), t.Errorf)
	if n := c.Stats().Settled[conn.TimedOut][conn.Unknown]; n != callers*each {
		t.Errorf("%d calls timed out, of %d", n, callers*each)
	}
	if tombstones == 0 || tombstones > maxTombstones {
		t.Errorf("%d calls that have ended are remembered, at most %d may be", tombstones, maxTombstones)
	}
	if kept > maxKept {
		t.Errorf("%d bytes are kept of %d calls that have ended", kept, callers*each)
	}
	if left > maxLeft {
		t.Errorf("%d bytes are left after the tombstones have expired; before that it was %d", left, kept)
	}
	c.Stop()
	running.Wait()
}

// heapInUse returns how many bytes of the heap are in use.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a second collection also frees the contents of a sync.Pool
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// silentLink is a link to a peer that accepts all frames and sends none.
type silentLink struct {
	receiver transport.Receiver
	lost     sync.Once
}

func (m *silentLink) Bind(r transport.Receiver)     { m.receiver = r }
func (m *silentLink) Send(transport.Outbound) error { return nil }
func (m *silentLink) Grant(transport.Stream, int)   {}
func (m *silentLink) Resume(transport.Stream)       {}
func (m *silentLink) End(transport.Stream)          {}

func (m *silentLink) Close(time.Duration) error {
	m.lost.Do(func() { m.receiver.Lost(transport.Loss{Reason: transport.ErrClosed}) })
	return nil
}
