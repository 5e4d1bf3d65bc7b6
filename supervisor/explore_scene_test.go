package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// A choice is one thing that may happen next in a small world.
type choice struct {
	kind  choiceKind
	child uint8
}

func (c choice) String() string { return fmt.Sprintf("%s %d", c.kind, c.child) }

type choiceKind string

const (
	adds        choiceKind = "the program adds child"
	initializes choiceKind = "Init has returned, of child"
	fails       choiceKind = "an error ends child"
	returns     choiceKind = "nothing is wrong, and ended is child"
	leaves      choiceKind = "something is left behind, and ended is child" // another Run would go on with it
	closes      choiceKind = "it has closed for good, and ended is child"
	finishes    choiceKind = "Drain has returned, of child"
	halts       choiceKind = "the program stops child"
	restarts    choiceKind = "the program restarts child"
	stopsAll    choiceKind = "the supervisor is stopped"
	keepsAll    choiceKind = "the supervisor is stopped, to begin again"
	drainsAll   choiceKind = "the supervisor is drained"
	begins      choiceKind = "the supervisor begins again"
	fires       choiceKind = "the timer fires"
	passes      choiceKind = "the period passes"
)

// A childBook is what the small world knows of a child.
type childBook struct {
	listed     bool // added, and not over
	alive      bool // its goroutine runs
	starting   bool // that is in Init
	fresh      bool // it has never got past it
	halted     bool // that was told to stop
	again      bool // to run again
	draining   bool // its Drain runs
	dismissing bool // all that runs is what closes what was left
	left       bool // its last Run has left something
	overdue    bool // it has ignored its stop
	kept       bool // it does not run, and is to
	asked      bool // somebody asked for its stop alone
}

// A scene is a supervisor in its small world.
type scene struct {
	plan     *plan
	core     *core
	now      instant
	children [4]childBook // 1 and following
	added    uint8
	ended    []instant // restartable ends of children that nobody told to stop
	stopping bool
	keeping  bool
	hurried  bool // the time for the drain was up
	over     bool // the supervisor has stopped
	ordered  bool // it begins again
	gaveUp   bool

	fault  error
	digest uint64
	said   []string
	talks  bool
}

func newScene(p *plan) *scene {
	w := &scene{plan: p, now: time.Second, core: newCore(&p.options)}
	w.core.nested = p.nested
	return w
}

// choices appends what may happen next.
func (w *scene) choices(to []choice) []choice {
	may := func(kind choiceKind, child int) {
		if slices.Contains(w.plan.events, kind) {
			to = append(to, choice{kind, uint8(child)})
		}
	}
	if int(w.added) < len(w.plan.children) && !w.stopping {
		may(adds, int(w.added)+1)
	}
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		if b.alive && b.starting && !b.dismissing {
			may(initializes, i)
		}
		if b.alive {
			may(fails, i)
			may(returns, i)
			may(closes, i)
			if !b.dismissing {
				may(leaves, i)
			}
		}
		if b.draining {
			may(finishes, i)
		}
		if b.listed {
			may(halts, i)
			may(restarts, i)
		}
	}
	may(stopsAll, 0)
	may(keepsAll, 0)
	may(drainsAll, 0)
	if w.over && w.keeping {
		may(begins, 0)
	}
	if w.core.dueAt != 0 {
		may(fires, 0)
	}
	if len(w.ended) > 0 {
		may(passes, 0)
	}
	return to
}

// apply does one choice, and holds the invariants.
func (w *scene) apply(c choice) {
	w.digest = 0
	b := &w.children[c.child]
	msg := &message{child: uint64(c.child)}
	switch c.kind {
	case adds:
		w.added++
		*b = childBook{listed: true, fresh: true, kept: true}
		msg.kind, msg.traits = added, w.plan.children[c.child-1]
	case initializes:
		b.starting = false
		b.fresh = b.fresh && b.halted
		msg.kind = initialized
	case fails, returns, leaves, closes:
		w.end(c)
		msg.kind, msg.failed, msg.resumes = ended, c.kind != returns, c.kind == leaves
		msg.final = c.kind == closes
	case finishes:
		b.draining, b.asked = false, true
		msg.kind = drained
	case halts:
		b.asked, b.again = true, false
		b.kept = b.kept && b.alive
		msg.kind = haltAsked
	case restarts:
		b.asked = !w.stopping
		msg.kind = restartAsked
	case stopsAll, keepsAll, drainsAll:
		if keeps := c.kind == keepsAll && (!w.stopping || w.keeping); !w.over || w.keeping != keeps {
			w.keeping = keeps
			w.stop()
		}
		msg.kind, msg.keeps = stopAsked, c.kind == keepsAll
		if c.kind == drainsAll {
			msg.kind, msg.due = drainAsked, w.now+smallDrain
		}
	case begins:
		w.stopping, w.keeping, w.over, w.ordered, w.gaveUp, w.ended = false, false, false, true, false, nil
		msg.kind = begun
	case fires:
		w.now = max(w.now, w.core.dueAt)
		w.hurried = w.core.state == Draining && w.core.drainDue <= w.now
		msg.kind = tick
	case passes:
		w.now += smallPeriod + 1
		w.ended = nil
		return
	}
	w.step(msg)
	w.checkRest()
	b.asked, w.hurried = false, false
}

// stop enters that the supervisor is to stop.
func (w *scene) stop() {
	w.stopping, w.over = true, false
	for i := range w.children {
		b := &w.children[i]
		b.again, b.kept = b.again && w.keeping, b.kept && w.keeping
	}
}

// end enters the end of a child's goroutines.
func (w *scene) end(c choice) {
	b := &w.children[c.child]
	restart := w.plan.children[c.child-1].restart
	counts := !b.halted && !b.fresh && c.kind != closes && restart.follows(c.kind != returns)
	if counts && !w.stopping {
		w.ended = append(w.ended, w.now)
	}
	again := counts && (!w.stopping || w.keeping) || b.halted && b.again && c.kind != closes
	b.left = c.kind == leaves
	b.alive, b.starting, b.halted, b.draining, b.dismissing, b.overdue = false, false, false, false, false, false
	b.kept = again
}
