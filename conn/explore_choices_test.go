package conn

import (
	"slices"
)

// choices appends what may happen next.
func (w *scene) choices(to []choice) []choice {
	if w.core.epoch > w.plan.epochs || w.probes > probes {
		return to
	}
	to = w.programChoices(to)
	to = w.clockChoices(to)
	for epoch := range w.links {
		if v := &w.visits[epoch]; v.asked && !v.came { // it may be on its way to who has left
			to = w.may(to, admits, uint8(epoch), 0)
		}
		to = w.linkChoices(to, uint8(epoch))
	}
	if !w.reports(w.bound) {
		return to
	}
	to = w.sendChoices(to)
	for lane := range w.lanes {
		to = w.laneChoices(to, uint8(lane))
	}
	for number := range w.plan.questions {
		if q := w.plan.questions[number]; w.brings(q.lane) && !w.questions[number].asked && w.inOrder(number) {
			to = w.may(to, asks, q.lane, uint8(number))
		}
	}
	return to
}

func (w *scene) may(to []choice, kind choiceKind, a, b uint8) []choice {
	if w.plan.events.have(kind) {
		to = append(to, choice{kind, a, b})
	}
	return to
}

// reports says whether a link may still be heard of.
func (w *scene) reports(epoch uint64) bool { return w.links[epoch].open && !w.links[epoch].over }

// brings says whether a stream may deliver a frame now. One that was ended from
// this side may have delivered it before.
func (w *scene) brings(lane uint8) bool {
	l := &w.lanes[lane]
	return l.opened && !l.complete && !l.over && !l.cut && (l.credit > 0 || l.partial) && !w.links[w.bound].ended
}

// inOrder holds that the rest of a batch comes right behind its beginning, and
// that a stream of the peer's has one frame.
func (w *scene) inOrder(number int) bool {
	lane := w.plan.questions[number].lane
	if number > 0 && w.plan.questions[number-1].more {
		return w.lanes[lane].partial
	}
	return !w.lanes[lane].partial
}

func (w *scene) programChoices(to []choice) []choice {
	handler := slices.IndexFunc(w.questions[:], func(q questionBook) bool { return q.running })
	for i, p := range w.plan.calls {
		id := uint8(i + 1)
		may := p.by == byProgram || p.by == byHandshake && w.links[w.core.epoch].shaking || p.by == byHandler && handler >= 0
		if c := &w.calls[id]; !c.made && may {
			to = w.may(to, makesCall, id, 0)
			if w.core.epoch > 1 {
				to = w.may(to, callsStale, id, 0)
			}
		} else if c.made && !c.settled {
			to = w.may(to, leaves, id, 0)
		}
	}
	if n := &w.calls[0]; !n.made {
		to = w.may(to, notes, 0, 0)
		if handler >= 0 {
			to = w.may(to, notesOnStream, uint8(handler), 0)
		}
	} else if !n.settled {
		to = w.may(to, noteLeaves, 0, 0)
	}
	for i := range w.questions {
		if w.questions[i].running {
			to = w.may(to, returns, uint8(i), 0)
		}
	}
	if w.crowded {
		to = w.may(to, eases, 0, 0)
	} else {
		to = w.may(to, crowds, 0, 0)
	}
	to = w.may(to, drains, 0, 0)
	to = w.may(to, stops, 0, 0)
	return w.may(to, wakes, 0, 0)
}

func (w *scene) clockChoices(to []choice) []choice {
	due := len(w.deadlines())
	for i := range due {
		if i == 0 || i == due-1 {
			to = w.may(to, fires, uint8(i), 0)
			if w.core.liveness.dueAt != 0 {
				to = w.may(to, fires, uint8(i), 1)
			}
		}
	}
	if due > 0 && w.core.deadline() > w.now {
		to = w.may(to, lapses, 0, 0)
	}
	return to
}

func (w *scene) linkChoices(to []choice, epoch uint8) []choice {
	l := &w.links[epoch]
	if l.opening {
		to = w.may(to, opensLink, epoch, 0)
		to = w.may(to, opensNot, epoch, 0)
	}
	if l.shaking {
		to = w.may(to, shakes, epoch, 0)
		to = w.may(to, shakesNot, epoch, 0)
	}
	if l.open && !l.over {
		to = w.may(to, losesLink, epoch, 0)
		to = w.may(to, losesLink, epoch, 1)
		if !l.ended && !w.partial() {
			to = w.may(to, endsInput, epoch, 0)
		}
	}
	if l.closing > 0 {
		to = w.may(to, closesLink, epoch, 0)
	}
	return to
}

func (w *scene) partial() bool {
	return slices.ContainsFunc(w.lanes[:], func(l laneBook) bool { return l.partial })
}

func (w *scene) sendChoices(to []choice) []choice {
	switch {
	case w.severed:
		return to
	case w.room == roomy:
		to = w.may(to, fills, 0, 0)
	default:
		to = w.may(to, empties, roomy, 0)
		if w.room == full {
			to = w.may(to, empties, single, 0)
		}
	}
	if w.refused {
		to = w.may(to, isWritable, single, 0)
		to = w.may(to, isWritable, roomy, 0)
	}
	if !w.oversize {
		to = w.may(to, oversizes, 0, 0)
	}
	return w.may(to, severs, 0, 0)
}

func (w *scene) laneChoices(to []choice, lane uint8) []choice {
	l, own := &w.lanes[lane], lane > 0 && int(lane) <= len(w.plan.calls)
	c := &callBook{}
	if own {
		c = &w.calls[lane]
	}
	ours := own && c.taken && c.epoch == w.bound && !c.failed
	switch {
	case !l.opened && (ours || lane > ownLanes):
		to = w.may(to, opensLane, lane, 0)
	case lane > 0 && l.opened && !l.over && !l.partial && !l.cut:
		to = w.may(to, losesLane, lane, 0)
	}
	if ours && !l.over && !l.answered && !w.links[w.bound].ended {
		to = w.may(to, fails, lane, 0)
		to = w.may(to, fails, lane, 1)
	}
	if l.opened && !l.over && !l.cut && lane <= ownLanes {
		to = w.may(to, cutsLane, lane, 0)
		to = w.may(to, cutsLane, lane, 1)
	}
	if w.brings(lane) && !l.partial {
		to = w.frameChoices(to, lane)
	}
	return to
}

func (w *scene) frameChoices(to []choice, lane uint8) []choice {
	last := uint8(0)
	if lane > 0 {
		last = 1
	}
	if lane <= ownLanes {
		for i := range w.plan.calls {
			if id := uint8(i + 1); lane == 0 || lane == id {
				to = w.may(to, replies, lane, id<<1|last)
				to = w.may(to, faults, lane, id<<1|last)
				to = w.may(to, progresses, lane, id<<1)
			}
		}
		for i, p := range w.plan.calls {
			if id := uint8(i + 1); p.streaming && (lane == 0 || lane == id) && w.calls[id].made {
				to = w.may(to, endsOurs, lane, id<<1|last)
			}
		}
		to = w.may(to, replies, lane, noID<<1)
	}
	for probe := max(w.probes, 2) - 2; probe < w.probes && lane == 0; probe++ {
		to = w.may(to, answersProbe, probe, 0)
	}
	to = w.may(to, notifies, lane, last)
	to = w.may(to, sendsGarbage, lane, last)
	for i, q := range w.plan.questions {
		if w.questions[i].asked && (lane == 0 || lane == q.lane) {
			to = w.may(to, takesBack, lane, uint8(i)<<1|last)
		}
	}
	return to
}

// deadlines lists the instants at which something of the core's is due.
func (w *scene) deadlines() []instant {
	c := w.core
	var due [20]instant
	all := append(due[:0], c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt, c.outbound.retryAt, c.outbound.stuckAt,
		c.tombstones.sweepAt, c.streams.main.resumeAt, c.flow.until, c.liveness.dueAt)
	for _, r := range c.pending.byDeadline {
		all = append(all, r.deadline)
	}
	for _, s := range c.streams.others {
		all = append(all, s.resumeAt)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(at instant) bool { return at == 0 })
}
