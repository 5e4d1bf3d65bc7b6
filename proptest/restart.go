package proptest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// Restart checks that the loss of a link, at every frame of a history in either
// direction, ends each call once and those in flight in one step, that the Conn
// becomes ready again, and that ids rise over all of its links.
//
// What the transport must be is said at Correlation. Options.Faults may leave
// out what is done besides the loss; the loss itself is always tried.
//
// Guarantees: G-0003.1, G-0003.2
func Restart(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	const calls = 6
	o.search(t, func(rt *rapid.T) {
		plan := inboundOnly(drawPlan(rt, o, fault.Reorder, fault.Duplicate, fault.Forge))
		if o.allows(fault.SlowClose) {
			plan.SlowClose = o.stopGrace() / 2 // so that the next attempt may have to wait for the old link
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

// losesAndRecovers plays a history on a link that dies on the way, and makes a
// call on the next, which may be asked for before the old one is closed.
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

// checkIDsRise wants the ids of a link above those of every link before it.
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
