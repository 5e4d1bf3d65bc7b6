package proptest

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// Correlation checks that each call has exactly one outcome, and that each result goes
// to its own call, or to none. Meanwhile it reorders, repeats, loses,
// delays, forges and corrupts answers, breaks links, and cancels calls.
//
// The peer of the transport must answer each request with its params, as Echo does, and
// ignore notifications. Correlation opens the transport hundreds of times, often while
// an earlier link is still closing. It injects faults between the transport and the
// Conn under test.
//
// Guarantees: G-0003.1, G-0003.2, G-0005.1, G-0005.2
func Correlation(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	o.search(t, func(rt *rapid.T) {
		plan := drawPlan(rt, o, answerFaults...)
		steps := drawHistory(rt, o, o.Concurrent, anyCall(o))
		o.history(rt, from, plan, func(h *harness) {
			h.awaitReady()
			h.play(steps)
			h.finishCalls()
		})
	})
}

// CancelIdempotent checks that cancelling a call ten times has the same effect as
// cancelling it once: before the call is sent, after that, at the moment of its answer,
// and later. The call has one outcome. The peer is notified at most once, and not if the
// call was answered or not sent. Other calls are not affected.
//
// The transport must be as for Correlation. Notifications of the peer are checked only if
// Options.Conn.Dialect is nil.
//
// Guarantees: G-0003.1, G-0003.7, G-0003.12
func CancelIdempotent(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	o.search(t, func(rt *rapid.T) {
		answerDelay := drawPause(rt, o)
		plan := fault.Plan{}
		if answerDelay > 0 && o.allows(fault.Delay) {
			plan.Faults = []fault.Fault{{Kind: fault.Delay, Direction: fault.Inbound, Probability: 1, Frames: o.Concurrent * 10, For: answerDelay}}
		}
		at := drawCancels(rt, o, answerDelay)
		others := rapid.IntRange(0, min(3, o.Concurrent-1)).Draw(rt, "other calls")
		before := rapid.IntRange(0, 9).Draw(rt, "before it is made") == 0
		o.history(rt, from, plan, func(h *harness) {
			h.awaitReady()
			h.cancels(at, others, before)
		})
	})
}

// drawCancels draws the times at which a call is cancelled. The first is
// immediately, at any moment, or at the moment of the answer. The others are at
// the same moment or later.
func drawCancels(rt *rapid.T, o Options, answerDelay time.Duration) []time.Duration {
	moment := rapid.Map(rapid.Int64Range(0, int64(2*o.Window)), func(n int64) time.Duration { return time.Duration(n) })
	first := rapid.OneOf(rapid.Just(answerDelay), rapid.Just(time.Duration(0)), moment).Draw(rt, "cancelled at")
	later := rapid.OneOf(rapid.Just(time.Duration(0)), moment)
	at := rapid.SliceOfN(later, o.Cancels, o.Cancels).Draw(rt, "and later")
	for i := range at {
		at[i] += first
	}
	at[0] = first
	return at
}

// cancels makes a call, and cancels it at each of these times.
func (h *harness) cancels(at []time.Duration, others int, before bool) {
	h.t.Helper()
	for range others {
		h.call(h.o.patientPlan())
	}
	ctx, layers := nestedContext(len(at))
	if before {
		layers[0]()
	}
	cancelled := h.callIn(ctx, h.o.patientPlan())
	var cancelling sync.WaitGroup
	for i, after := range at {
		cancelling.Go(func() {
			timer := time.NewTimer(after)
			<-timer.C
			layers[i]()
			cancelled.cancel()
		})
	}
	cancelling.Wait()
	h.finishCalls()
	h.checkCancelNotified(cancelled, before)
	for _, c := range h.callers {
		if c != cancelled && c.err != nil {
			h.fatalf("call %s was not cancelled, and ended with %v", c.params, c.err)
		}
	}
}

// nestedContext returns a context with n nested parents, and the functions that cancel each of
// them.
func nestedContext(n int) (ctx context.Context, cancels []context.CancelFunc) {
	ctx = context.Background()
	for range n {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancels = append(cancels, cancel)
	}
	return ctx, cancels
}

// checkCancelNotified checks that the peer is notified once of a cancelled call that
// it has received, and of no other call.
func (h *harness) checkCancelNotified(c *caller, before bool) {
	h.t.Helper()
	passed := h.outer.sendsOf(c.params)
	if before && len(passed) > 0 {
		h.fatalf("call %s was sent after it was cancelled", c.params)
	}
	if len(passed) == 0 {
		return
	}
	notified := h.outer.cancellations(passed[0].id)
	if notified > 1 || c.err == nil && notified > 0 {
		h.fatalf("the peer got %d cancellations of call %s, which ended with %v", notified, c.params, c.err)
	}
	if _, isDefault := h.o.Conn.Dialect.(cancelDialect); isDefault && c.err != nil && notified == 0 && !h.o.RealTime {
		h.fatalf("the peer got no cancellation of call %s", c.params)
	}
}
