package proptest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// StopAnywhere stops or closes a Conn, or both, before and after every step of a history.
// It checks that the Conn ends each call once, returns from Run within its graces,
// refuses later calls, and leaves nothing behind. It also checks that a Close alone lets
// the calls in flight be answered.
//
// The transport must be as for Correlation. Its links must close within their grace.
//
// Guarantees: G-0009.1, G-0009.2, G-0009.6, G-0009.7
func StopAnywhere(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	const calls = 8
	o.search(t, func(rt *rapid.T) {
		plan := drawPlan(rt, o, answerFaults...)
		if o.allows(fault.SlowClose) {
			plan.SlowClose = time.Duration(rapid.Int64Range(0, int64(o.stopGrace()/2)).Draw(rt, "slow close"))
		}
		if o.allows(fault.Stall) && rapid.Bool().Draw(rt, "a link that does not flush") {
			stall := fault.Fault{Kind: fault.Stall, Direction: fault.Outbound, Probability: 0.5, For: 2 * o.drainGrace()}
			plan.Faults = append([]fault.Fault{stall}, plan.Faults...)
		}
		steps := drawHistory(rt, o, min(calls, o.Concurrent), anyCall(o))
		shutdowns := drawShutdowns(rt, o)
		for n := range len(steps) + 2 {
			o.history(rt, from, plan, func(h *harness) { h.stopAfter(steps, n-1, shutdowns) })
		}
		quiet := inboundOnly(drawPlan(rt, o, fault.Reorder, fault.Delay, fault.Duplicate))
		o.history(rt, from, quiet, func(h *harness) { h.checkDrain(countCalls(steps)) })
	})
}

// A shutdown is a Stop or a Close of the Conn, at a given time.
type shutdown struct {
	Close    bool          // Close; otherwise Stop
	Deadline time.Duration // the deadline of Close; 0: none
	After    time.Duration
}

func drawShutdowns(rt *rapid.T, o Options) []shutdown {
	soon := rapid.Map(rapid.Int64Range(0, int64(10*o.Window)), func(n int64) time.Duration { return time.Duration(n) })
	patient := rapid.IntRange(0, 2).Draw(rt, "patient") == 2 // whether the history ends with Close without a deadline only
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) shutdown {
		e := shutdown{Close: patient || rapid.Bool().Draw(rt, "close")}
		if e.Close && !patient && rapid.Bool().Draw(rt, "with a deadline") {
			e.Deadline = soon.Draw(rt, "deadline")
		}
		if rapid.Bool().Draw(rt, "later") {
			e.After = soon.Draw(rt, "after")
		}
		return e
	}), 1, 4).Draw(rt, "endings")
}

// stopAfter plays n steps, and then ends the Conn in the given ways. If n is
// -1, it ends the Conn at the start, perhaps before Run runs.
func (h *harness) stopAfter(steps []step, n int, shutdowns []shutdown) {
	h.t.Helper()
	if n >= 0 {
		h.awaitReady()
		h.play(steps[:n])
	}
	began, bound := time.Now(), h.latestEnd(shutdowns)
	var stopping sync.WaitGroup
	for _, e := range shutdowns {
		stopping.Go(func() { h.shutDown(e) })
	}
	h.await("the end of Run", h.runDone)
	took := time.Since(began)
	stopping.Wait()
	h.await("Done", h.conn.Done())
	h.checkResult(shutdowns)
	h.checkEndTimes(began, shutdowns)
	if took > bound && !h.o.RealTime {
		h.fatalf("Run returned after %v, and not within %v", took, bound)
	}
	h.checkNonePending()
	h.checkRefusesCalls()
	h.finishCalls()
}

// checkResult checks that Run returns no error. If the link is lost while Close
// waits for calls, Run returns that reason. In real time, the link may also
// take too long to close.
func (h *harness) checkResult(shutdowns []shutdown) {
	h.t.Helper()
	var why conn.Reason
	linkLost := errors.As(h.runErr, &why) && slices.ContainsFunc(shutdowns, func(e shutdown) bool { return e.Close })
	slow := h.o.RealTime && errors.As(h.runErr, new(*conn.StuckError)) // what is left behind is checked at the end
	if h.runErr != nil && !linkLost && !slow {
		h.fatalf("Run returned %v", h.runErr)
	}
}

// checkEndTimes checks that every call has ended at the first Stop, or at the
// deadline of the first Close that has one.
func (h *harness) checkEndTimes(began time.Time, shutdowns []shutdown) {
	h.t.Helper()
	h.waitIdle()
	latest := time.Duration(1<<63 - 1)
	for _, e := range shutdowns {
		end := e.After
		if e.Close {
			end += cmp.Or(e.Deadline, h.o.drainGrace())
		}
		latest = min(latest, end)
	}
	for _, c := range h.callers {
		if c.hasReturned() && !h.o.RealTime && c.at.Sub(began) > latest {
			h.fatalf("call %s ended %v after the first Stop or Close, and not within %v", c.params, c.at.Sub(began), latest)
		}
	}
}

// shutDown calls Stop or Close. Close may fail because the Conn does not run yet.
func (h *harness) shutDown(e shutdown) {
	timer := time.NewTimer(e.After)
	<-timer.C
	if !e.Close {
		h.conn.Stop()
		return
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if e.Deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, e.Deadline)
	}
	defer cancel()
	h.conn.Close(ctx) // the result depends on which call came first, but Close must return
}

// latestEnd returns when Run must have returned at the latest. The first Stop or
// Close decides, plus the graces that follow it. A Close without a deadline
// allows DrainGrace for calls, and again for the link.
func (h *harness) latestEnd(shutdowns []shutdown) time.Duration {
	bound := time.Duration(1<<63 - 1)
	stop, drain := h.o.stopGrace(), h.o.drainGrace()
	for _, e := range shutdowns {
		latest := e.After + 3*stop
		switch {
		case e.Close && e.Deadline > 0:
			latest += e.Deadline // the Conn stops at the deadline
		case e.Close:
			latest += 2 * drain
		}
		bound = min(bound, latest)
	}
	return bound
}

func (o Options) stopGrace() time.Duration  { return cmp.Or(o.Conn.StopGrace, 100*time.Millisecond) }
func (o Options) drainGrace() time.Duration { return cmp.Or(o.Conn.DrainGrace, 5*time.Second) }

// checkRefusesCalls checks that a closed Conn accepts no call, and that ending
// it again has no effect.
func (h *harness) checkRefusesCalls() {
	h.t.Helper()
	h.conn.Stop()
	if err := h.conn.Close(context.Background()); err != nil {
		h.fatalf("Close after the end: %v", err)
	}
	late := h.call(callPlan{WaitForReady: true})
	h.await("the end of a call after the end", late.done)
	var failed *conn.CallError
	if !errors.As(late.err, &failed) || failed.Cause != conn.ShutDown && failed.Cause != conn.LinkLost || !conn.NotExecuted(late.err) {
		h.fatalf("a call after the end ended with %v", late.err)
	}
}

// checkDrain closes a Conn during calls whose answers are only delayed.
func (h *harness) checkDrain(calls int) {
	h.t.Helper()
	h.awaitReady()
	for range calls {
		h.call(h.o.patientPlan())
	}
	h.waitIdle()
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if h.o.RealTime { // in real time it is unknown how long an answer takes
		ctx, cancel = context.WithTimeout(ctx, h.o.guard())
	}
	defer cancel()
	err := h.conn.Close(ctx)
	h.finishCalls()
	if err != nil {
		h.fatalf("Close: %v", err)
	}
	for _, c := range h.callers {
		if c.err != nil && !(h.o.RealTime && conn.NotExecuted(c.err)) {
			h.fatalf("Close did not wait for call %s, which ended with %v", c.params, c.err)
		}
	}
}

// Restart breaks the link at every frame of a history, in both directions. It checks that
// each call ends once, that all calls in flight end in one step, that the Conn becomes
// ready again, and that ids keep rising over all links.
//
// The transport must be as for Correlation. Options.Faults limits only the additional
// faults; the link is always broken.
//
// Guarantees: G-0003.1, G-0003.2
func Restart(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	const calls = 6
	o.search(t, func(rt *rapid.T) {
		plan := inboundOnly(drawPlan(rt, o, fault.Reorder, fault.Duplicate, fault.Forge))
		if o.allows(fault.SlowClose) {
			plan.SlowClose = o.stopGrace() / 2 // so the next attempt may have to wait until the old link is closed
			if o.RealTime {
				plan.SlowClose = 2 * o.Conn.BackoffMin
			}
		}
		wakes := rapid.Bool().Draw(rt, "wakes")
		steps := drawHistory(rt, o, min(calls, o.Concurrent), rapid.Just(o.patientPlan()))
		for _, direction := range []fault.Direction{fault.Inbound, fault.Outbound} {
			for frame := range o.handshake[direction] + countCalls(steps) {
				plan := plan
				plan.Faults = append([]fault.Fault{{Kind: fault.Die, Direction: direction, Link: 1, At: []int{frame + 1}}}, plan.Faults...)
				o.history(rt, from, plan, func(h *harness) { h.checkRestart(steps, wakes) })
			}
		}
	})
}

func countCalls(steps []step) (n int) {
	for _, s := range steps {
		n += len(s.Calls)
	}
	return n
}

// checkRestart plays a history on a link that is lost during it, and makes
// a call on the next link. The Conn may be woken before the old link is closed.
func (h *harness) checkRestart(steps []step, wakes bool) {
	h.t.Helper()
	h.awaitReady()
	h.play(steps)
	h.finishCalls()
	if !h.linkDied() {
		h.fatalf("the link was not lost, so nothing was tested")
	}
	if wakes {
		h.conn.Wake()
	}
	h.await("another link", h.outer.reopened)
	h.awaitReady()
	patient := h.o.patientPlan()
	patient.WaitForReady = true
	last := h.call(patient)
	h.finishCalls()
	if last.err != nil {
		h.fatalf("the call after the loss ended with %v", last.err)
	}
	h.checkIDsRise()
	if links, _, _ := h.outer.count(); h.conn.Status().Epoch < uint64(links) {
		h.fatalf("epoch %d after %d links", h.conn.Status().Epoch, links)
	}
}

func (h *harness) linkDied() bool {
	return slices.ContainsFunc(h.faults.Log(), func(e fault.Entry) bool { return e.Kind == fault.Die })
}

// checkIDsRise checks that all ids of a link are greater than those of earlier links.
func (h *harness) checkIDsRise() {
	h.t.Helper()
	highest := map[int]int64{}
	for _, s := range h.outer.sentRequests() {
		highest[s.link] = max(highest[s.link], s.id)
	}
	for _, s := range h.outer.sentRequests() {
		for link := 1; link < s.link; link++ {
			if s.id <= highest[link] {
				h.fatalf("id %d on link %d, and %d on link %d before it", s.id, s.link, highest[link], link)
			}
		}
	}
}
