package proptest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport/fault"
)

// A step is what callers do at one moment, and how long it lasts.
type step struct {
	Calls []callPlan
	Pass  time.Duration
}

// drawHistory draws steps with at most the given number of calls. Few steps
// have two calls at the same time, so that rapid can shrink a failure well.
func drawHistory(rt *rapid.T, o Options, calls int, plan *rapid.Generator[callPlan]) []step {
	var steps []step
	total := rapid.IntRange(1, calls).Draw(rt, "calls")
	for made := 0; made < total; {
		n := rapid.IntRange(1, total-made).Draw(rt, "at once")
		s := step{Calls: rapid.SliceOfN(plan, n, n).Draw(rt, "step"), Pass: drawPause(rt, o)}
		steps = append(steps, s)
		made += n
	}
	return steps
}

func drawPause(rt *rapid.T, o Options) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(o.Window)).Draw(rt, "pause"))
}

// anyCall draws how a call is made: without a limit, or with a timeout or a
// context that may end before the answer comes.
func anyCall(o Options) *rapid.Generator[callPlan] {
	return rapid.Custom(func(rt *rapid.T) callPlan {
		soon := rapid.Int64Range(1, int64(2*o.Window))
		plan := callPlan{WaitForReady: rapid.Bool().Draw(rt, "wait for ready")}
		switch rapid.IntRange(0, 3).Draw(rt, "impatience") {
		case 2:
			plan.Timeout = time.Duration(soon.Draw(rt, "timeout"))
		case 3:
			plan.CancelAfter = time.Duration(soon.Draw(rt, "leave"))
		}
		return plan
	})
}

// drawPlan draws faults of the given kinds, if the options allow them.
func drawPlan(rt *rapid.T, o Options, kinds ...fault.Kind) fault.Plan {
	plan := fault.Plan{Seed: rapid.Uint64().Draw(rt, "seed")}
	if o.allows(fault.FailOpen) {
		plan.FailOpens = rapid.IntRange(0, 2).Draw(rt, "failed opens")
	}
	if kinds = slices.DeleteFunc(slices.Clone(kinds), func(k fault.Kind) bool { return !o.allows(k) }); len(kinds) == 0 {
		return plan
	}
	plan.Faults = rapid.SliceOfN(anyFault(o, kinds), 0, 6).Draw(rt, "faults")
	return plan
}

func (o Options) allows(kind fault.Kind) bool {
	return o.Faults == nil || slices.Contains(o.Faults, kind)
}

// anyFault draws a fault. A fault that ends a link, or silences its only
// stream, hits one chosen frame. If it hit frames at random, hardly any call
// would be answered.
func anyFault(o Options, kinds []fault.Kind) *rapid.Generator[fault.Fault] {
	return rapid.Custom(func(rt *rapid.T) fault.Fault {
		f := fault.Fault{
			Kind:      rapid.SampledFrom(kinds).Draw(rt, "kind"),
			Direction: rapid.SampledFrom([]fault.Direction{fault.Inbound, fault.Outbound}).Draw(rt, "direction"),
			Frames:    rapid.IntRange(1, o.Concurrent).Draw(rt, "frames"),
			For:       time.Duration(rapid.Int64Range(1, int64(o.Window)).Draw(rt, "for")),
		}
		if only := directions(f.Kind); len(only) == 1 {
			f.Direction = only[0]
		}
		f.After = o.handshake[f.Direction]
		switch f.Kind {
		case fault.Die, fault.HalfOpen, fault.MuteStream:
			f.Link = rapid.IntRange(1, 3).Draw(rt, "link")
			f.At = []int{f.After + rapid.IntRange(1, o.Concurrent).Draw(rt, "at")}
			return f
		}
		f.Probability = rapid.SampledFrom([]float64{0.1, 0.3, 1}).Draw(rt, "probability")
		return f
	})
}

// directions returns the directions that a kind of fault may have.
func directions(kind fault.Kind) []fault.Direction {
	switch kind {
	case fault.Busy:
		return []fault.Direction{fault.Outbound}
	case fault.LoseStream, fault.CutStream, fault.MuteStream:
		return []fault.Direction{fault.Inbound}
	default:
		return []fault.Direction{fault.Inbound, fault.Outbound}
	}
}

// answerFaults are the faults that change, delay or lose an answer.
var answerFaults = []fault.Kind{
	fault.Reorder, fault.Duplicate, fault.Drop, fault.Forge, fault.Delay, fault.Stall, fault.Truncate,
	fault.Corrupt, fault.Flood, fault.Busy, fault.Die, fault.HalfOpen, fault.LoseStream, fault.CutStream,
	fault.MuteStream,
}

// play makes the calls of a history.
func (h *harness) play(steps []step) {
	h.t.Helper()
	for _, s := range steps {
		h.playStep(s)
	}
}

func (h *harness) playStep(s step) {
	h.t.Helper()
	for _, plan := range s.Calls {
		h.call(plan)
	}
	h.waitIdle()
	h.advance(s.Pass)
}

// inboundOnly limits a plan to inbound faults, so that every call is answered
// unless its link is lost.
func inboundOnly(plan fault.Plan) fault.Plan {
	for i := range plan.Faults {
		plan.Faults[i].Direction = fault.Inbound
	}
	return plan
}
