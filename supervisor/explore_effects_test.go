package supervisor

import "fmt"

// step feeds the core, and has the small world do what it says.
func (w *scene) step(msg *message) {
	for _, fx := range w.core.step(w.now, msg) {
		w.digest = (w.digest ^ uint64(fx.kind)<<8 ^ fx.child) * 0x100000001b3
		if w.talks {
			w.said = append(w.said, fmt.Sprintf("%s %d", effectNames[fx.kind], fx.child))
		}
		w.perform(&fx)
	}
}

var effectNames = [...]string{
	launch: "launch", drain: "drain", halt: "halt", discard: "discard", stuck: "stuck",
	retire: "retire", giveUp: "give up", ready: "ready", conclude: "conclude",
}

// must notes the first invariant that does not hold.
func (w *scene) must(holds bool, format string, args ...any) {
	if !holds && w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (w *scene) perform(fx *effect) {
	b := &w.children[fx.child]
	switch fx.kind {
	case launch:
		w.launch(fx)
	case halt:
		w.halt(fx)
	case drain:
		ready := !b.starting || w.plan.children[fx.child-1].early
		w.must(w.stopping && !w.keeping && b.alive && ready && !b.halted && !b.draining, "a drain of child %d", fx.child)
		b.draining = true
	case discard:
		w.must(b.listed && !b.alive && b.left, "a discard of child %d, which has left nothing", fx.child)
		b.alive, b.dismissing, b.halted, b.left, b.again, b.kept = true, true, true, false, false, false
	case stuck:
		w.must(b.alive && b.halted && !b.overdue && w.plan.children[fx.child-1].shutdown >= 0, "child %d is called stuck", fx.child)
		b.overdue = true
	case retire:
		w.must(b.listed && !b.alive && !b.left, "child %d is called over", fx.child)
		b.listed, b.kept = false, false
	case giveUp:
		w.must(!w.stopping && !w.gaveUp, "a supervisor gives up that is stopping")
		w.must(w.spent() > w.plan.options.Intensity, "the supervisor gives up after %d restarts", w.spent())
		w.gaveUp, w.keeping = true, w.plan.nested
		w.stop()
	case ready:
		w.must(w.ordered, "children are called started that were not to be")
		w.ordered = false
		for i := 1; i <= int(w.added); i++ {
			b := &w.children[i]
			w.must(b.halted || !b.starting && (!b.kept || b.alive), "child %d was not started", i)
		}
	case conclude:
		w.conclude()
	}
}

// launch holds that one goroutine runs for a child, that nothing runs any more
// when the supervisor is to stop, and that what a child needs is there.
func (w *scene) launch(fx *effect) {
	b := &w.children[fx.child]
	w.must(b.listed && !b.alive && b.kept, "child %d is run, which was not to be", fx.child)
	w.must(!w.stopping, "child %d is run by a supervisor that is stopping", fx.child)
	for i := 1; i < int(fx.child); i++ {
		before := &w.children[i]
		if w.plan.options.Strategy != OneForOne && before.listed {
			w.must(before.overdue && !before.again || before.alive && !before.starting && !before.halted, "child %d is run before child %d", fx.child, i)
		}
	}
	for i := 1; i <= int(w.added) && w.plan.options.Strategy != OneForOne; i++ {
		other := &w.children[i]
		w.must(!other.alive || !other.halted || other.overdue && !other.again, "child %d is run before child %d is gone", fx.child, i)
	}
	inits := w.plan.children[fx.child-1].inits
	b.alive, b.starting, b.kept, b.left, b.again = true, inits, false, false, false
	b.fresh = b.fresh && inits
}

// halt holds that children are stopped in reverse order.
func (w *scene) halt(fx *effect) {
	b := &w.children[fx.child]
	w.must(b.alive && !b.halted, "child %d is told to stop, which does not run", fx.child)
	for i := int(fx.child) + 1; i <= int(w.added); i++ {
		after := &w.children[i]
		if !b.asked && !w.hurried && !b.draining {
			w.must(!after.alive || after.overdue, "child %d is told to stop before child %d", fx.child, i)
		}
	}
	b.halted, b.again = true, fx.rerun
	w.must(!fx.rerun || !w.stopping || w.keeping, "child %d is to run again", fx.child)
}

// conclude holds that what is left when the supervisor has stopped was named.
func (w *scene) conclude() {
	w.must(w.stopping && !w.over, "the supervisor concludes")
	w.over = true
	w.must(w.core.dueAt == 0, "the supervisor has stopped, and waits for a deadline")
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		w.must(!b.alive || b.overdue, "child %d runs when the supervisor has stopped", i)
		w.must(!b.listed || b.alive || w.keeping && b.kept, "child %d is not over when the supervisor has stopped", i)
	}
}

// spent is how many restarts count at present, at most.
func (w *scene) spent() (count int) {
	for _, at := range w.ended {
		if w.now-at <= smallPeriod {
			count++
		}
	}
	return count
}

// checkRest holds what is true whenever the core has nothing to do.
func (w *scene) checkRest() {
	busy, held := false, false
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		busy = busy || b.alive && (b.starting || b.halted && !b.overdue || b.draining)
		held = held || b.overdue && b.again
		w.must(!w.hurried || !b.alive || b.halted, "child %d runs on when the time for the drain is up", i)
		w.must(!b.listed || b.alive || b.kept || w.stopping, "child %d is forgotten", i)
	}
	w.must(!w.stopping || w.over || busy, "the supervisor does not get on with its stop")
	for i := 1; i <= int(w.added); i++ {
		waits := w.children[i].listed && !w.children[i].alive
		w.must(!waits || w.stopping || busy || held && w.plan.options.Strategy != OneForOne, "child %d waits for nothing", i)
	}
	if w.plan.options.Strategy == OneForOne {
		w.must(w.stopping || w.spent() <= w.plan.options.Intensity, "%d restarts, and the supervisor has not given up", w.spent())
	}
	w.checkMembers()
}

// checkMembers holds that the core has its own books in order.
func (w *scene) checkMembers() {
	var counts stateCounts
	listed, last := 0, uint64(0)
	for m := range w.core.members.inOrder() {
		b := &w.children[m.key]
		w.must(m.key > last && w.core.members.byKey[m.key] == m && b.listed, "the list is broken at child %d", m.key)
		last = m.key
		listed++
		want := Running
		switch {
		case !b.alive:
			want = Waiting
		case b.halted:
			want = Stopping
		case b.draining:
			want = Draining
		case b.starting:
			want = Starting
		}
		counts.count(want, 1)
		w.must(m.state == want, "child %d is %s, and should be %s", m.key, m.state, want)
		w.must(m.stuck == b.overdue, "child %d is stuck: %v, and should be: %v", m.key, m.stuck, b.overdue)
		bounded := m.state == Stopping && !m.stuck && m.shutdown >= 0
		w.must(!bounded || w.core.dueAt != 0 && w.core.dueAt <= m.due, "nothing ends the wait for child %d", m.key)
	}
	w.must(counts == w.core.members.stateCounts && listed == len(w.core.members.byKey), "the counts are wrong")
	w.must(w.core.state != Draining || w.core.dueAt != 0 && w.core.dueAt <= w.core.drainDue, "nothing ends the drain")
}
