package proptest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// Correlation checks that each call has one outcome, and that a result goes to
// the call that asked for it, or to nobody: while answers are reordered,
// repeated, lost, late, forged and spoiled, links are lost, and callers leave.
//
// The peer of the transport answers any request by its params, as Echo does,
// and ignores notifications. The transport is opened hundreds of times, often
// while an earlier link is still being closed. Faults are put between it and
// the Conn under test.
//
// Guarantees: G-0003.1, G-0003.2, G-0005.1, G-0005.2
func Correlation(t *testing.T, from transport.Transport, o Options) {
	o = o.prepare(t, from)
	o.search(t, func(rt *rapid.T) {
		plan := drawPlan(rt, o, answerFaults...)
		steps := drawHistory(rt, o, o.Concurrent, anyCall(o))
		o.history(rt, from, plan, func(w *world) {
			w.ready()
			w.play(steps)
			w.finish()
		})
	})
}
