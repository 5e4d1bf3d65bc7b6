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
		ends := drawEndings(rt, o)
		for n := range len(steps) + 2 {
			o.history(rt, from, plan, func(w *world) { w.stopsAfter(steps, n-1, ends) })
		}
		quiet := inboundOnly(drawPlan(rt, o, fault.Reorder, fault.Delay, fault.Duplicate))
		o.history(rt, from, quiet, func(w *world) { w.drains(countCalls(steps)) })
	})
}

// An ending is a Stop or a Close of the Conn, at a given time.
type ending struct {
	Close    bool          // Close; otherwise Stop
	Deadline time.Duration // the deadline of Close; 0: none
	After    time.Duration
}

func drawEndings(rt *rapid.T, o Options) []ending {
	soon := rapid.Map(rapid.Int64Range(0, int64(10*o.Window)), func(n int64) time.Duration { return time.Duration(n) })
	patient := rapid.IntRange(0, 2).Draw(rt, "patient") == 2 // whether the history ends with Close without a deadline only
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) ending {
		e := ending{Close: patient || rapid.Bool().Draw(rt, "close")}
		if e.Close && !patient && rapid.Bool().Draw(rt, "with a deadline") {
			e.Deadline = soon.Draw(rt, "deadline")
		}
		if rapid.Bool().Draw(rt, "later") {
			e.After = soon.Draw(rt, "after")
		}
		return e
	}), 1, 4).Draw(rt, "endings")
}

// stopsAfter plays n steps, and then ends the Conn in the given ways. If n is
// -1, it ends the Conn at the start, perhaps before Run runs.
func (w *world) stopsAfter(steps []step, n int, ends []ending) {
	w.t.Helper()
	if n >= 0 {
		w.ready()
		w.play(steps[:n])
	}
	began, bound := time.Now(), w.bound(ends)
	var ending sync.WaitGroup
	for _, e := range ends {
		ending.Go(func() { w.take(e) })
	}
	w.await("the end of Run", w.ran)
	took := time.Since(began)
	ending.Wait()
	w.await("Done", w.conn.Done())
	w.checkResult(ends)
	w.checkEnds(began, ends)
	if took > bound && !w.o.RealTime {
		w.fatalf("Run returned after %v, and not within %v", took, bound)
	}
	w.nothingPendsOutsideReady()
	w.refusesEverything()
	w.finish()
}

// checkResult checks that Run returns no error. If the link is lost while Close
// waits for calls, Run returns that reason. In real time, the link may also
// take too long to close.
func (w *world) checkResult(ends []ending) {
	w.t.Helper()
	var why conn.Reason
	lost := errors.As(w.result, &why) && slices.ContainsFunc(ends, func(e ending) bool { return e.Close })
	slow := w.o.RealTime && errors.As(w.result, new(*conn.StuckError)) // what is left behind is checked at the end
	if w.result != nil && !lost && !slow {
		w.fatalf("Run returned %v", w.result)
	}
}

// checkEnds checks that every call has ended at the first Stop, or at the
// deadline of the first Close that has one.
func (w *world) checkEnds(began time.Time, ends []ending) {
	w.t.Helper()
	w.settle()
	latest := time.Duration(1<<63 - 1)
	for _, e := range ends {
		end := e.After
		if e.Close {
			end += cmp.Or(e.Deadline, w.o.drainGrace())
		}
		latest = min(latest, end)
	}
	for _, c := range w.callers {
		if c.over() && !w.o.RealTime && c.at.Sub(began) > latest {
			w.fatalf("call %s ended %v after the first way out was taken, and not after %v", c.params, c.at.Sub(began), latest)
		}
	}
}

// take calls Stop or Close. Close may fail because the Conn does not run yet.
func (w *world) take(e ending) {
	timer := time.NewTimer(e.After)
	<-timer.C
	if !e.Close {
		w.conn.Stop()
		return
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if e.Deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, e.Deadline)
	}
	defer cancel()
	w.conn.Close(ctx) // the result depends on which call came first, but Close must return
}

// bound returns when Run must have returned at the latest. The first Stop or
// Close decides, plus the graces that follow it. A Close without a deadline
// allows DrainGrace for calls, and again for the link.
func (w *world) bound(ends []ending) time.Duration {
	bound := time.Duration(1<<63 - 1)
	stop, drain := w.o.stopGrace(), w.o.drainGrace()
	for _, e := range ends {
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

// refusesEverything checks that a closed Conn accepts no call, and that ending
// it again has no effect.
func (w *world) refusesEverything() {
	w.t.Helper()
	w.conn.Stop()
	if err := w.conn.Close(context.Background()); err != nil {
		w.fatalf("Close after the end: %v", err)
	}
	late := w.call(callPlan{WaitForReady: true})
	w.await("the end of a call after the end", late.done)
	var failed *conn.CallError
	if !errors.As(late.err, &failed) || failed.Cause != conn.ShutDown && failed.Cause != conn.LinkLost || !conn.NotExecuted(late.err) {
		w.fatalf("a call after the end ended with %v", late.err)
	}
}

// drains closes a Conn during calls whose answers are only delayed.
func (w *world) drains(calls int) {
	w.t.Helper()
	w.ready()
	for range calls {
		w.call(w.o.patient())
	}
	w.settle()
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if w.o.RealTime { // in real time it is unknown how long an answer takes
		ctx, cancel = context.WithTimeout(ctx, w.o.guard())
	}
	defer cancel()
	err := w.conn.Close(ctx)
	w.finish()
	if err != nil {
		w.fatalf("Close: %v", err)
	}
	for _, c := range w.callers {
		if c.err != nil && !(w.o.RealTime && conn.NotExecuted(c.err)) {
			w.fatalf("Close did not wait for call %s, which ended with %v", c.params, c.err)
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
		steps := drawHistory(rt, o, min(calls, o.Concurrent), rapid.Just(o.patient()))
		for _, direction := range []fault.Direction{fault.Inbound, fault.Outbound} {
			for frame := range o.handshake[direction] + countCalls(steps) {
				plan := plan
				plan.Faults = append([]fault.Fault{{Kind: fault.Die, Direction: direction, Link: 1, At: []int{frame + 1}}}, plan.Faults...)
				o.history(rt, from, plan, func(w *world) { w.losesAndRecovers(steps, wakes) })
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

// losesAndRecovers plays a history on a link that is lost during it, and makes
// a call on the next link. The Conn may be woken before the old link is closed.
func (w *world) losesAndRecovers(steps []step, wakes bool) {
	w.t.Helper()
	w.ready()
	w.play(steps)
	w.finish()
	if !w.died() {
		w.fatalf("the link did not die, so nothing was tried")
	}
	if wakes {
		w.conn.Wake()
	}
	w.await("another link", w.outer.reopened)
	w.ready()
	patient := w.o.patient()
	patient.WaitForReady = true
	last := w.call(patient)
	w.finish()
	if last.err != nil {
		w.fatalf("the call after the loss ended with %v", last.err)
	}
	w.checkIDsRise()
	if links, _, _ := w.outer.count(); w.conn.Status().Epoch < uint64(links) {
		w.fatalf("epoch %d after %d links", w.conn.Status().Epoch, links)
	}
}

func (w *world) died() bool {
	return slices.ContainsFunc(w.faults.Log(), func(e fault.Entry) bool { return e.Kind == fault.Die })
}

// checkIDsRise checks that all ids of a link are greater than those of earlier links.
func (w *world) checkIDsRise() {
	w.t.Helper()
	highest := map[int]int64{}
	for _, s := range w.outer.seen() {
		highest[s.link] = max(highest[s.link], s.id)
	}
	for _, s := range w.outer.seen() {
		for link := 1; link < s.link; link++ {
			if s.id <= highest[link] {
				w.fatalf("id %d on link %d, and %d on link %d before it", s.id, s.link, highest[link], link)
			}
		}
	}
}
