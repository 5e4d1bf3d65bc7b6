package conn

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	full uint8 = iota
	single
	roomy
)

func newScene(p *plan) *scene {
	w := &scene{plan: p, now: time.Second, room: roomy, core: newBusyCore(p.role, &p.options)}
	if w.state = Starting; p.role == acceptor {
		w.state = Initializing
	}
	w.happen(event{kind: started, particulars: &particulars{link: deadLink{}}})
	for _, c := range p.prologue {
		w.apply(c)
	}
	return w
}

// apply does one choice, and lets the shell finish what comes of it.
func (w *scene) apply(c choice) {
	w.digest = 0
	switch c.kind {
	case makesCall, callsStale:
		w.makeCall(c)
	case leaves:
		w.happen(event{kind: callLeft, id: int64(c.a), err: errGone})
	case notes:
		w.note(0, event{kind: notificationMade, epoch: w.core.epoch})
	case notesOnStream:
		in := w.questions[c.a].incoming
		w.note(w.plan.questions[c.a].lane, event{kind: notificationMade, epoch: in.Epoch, serving: true})
	case noteLeaves:
		w.happen(event{kind: callLeft, err: errGone, out: &outboundFrame{call: w.plan.callers[0]}})
	case returns:
		w.handlerReturns(c.a)
	case fills:
		w.room = full
	case empties:
		w.room = c.a
	case isWritable:
		w.room, w.refused = c.a, false
		w.happen(event{kind: writable, epoch: w.bound})
	case oversizes:
		w.oversize = true
	case severs:
		w.severed = true
	case drains:
		w.happen(event{kind: drainAsked, timeout: 3 * time.Second})
	case stops:
		w.happen(event{kind: stopAsked})
	case wakes:
		w.happen(event{kind: woken})
	case crowds, eases:
		if w.crowded = c.kind == crowds; w.crowded {
			w.happen(event{kind: crowded})
		} else {
			w.happen(event{kind: eased})
		}
	case admits:
		w.visits[c.a].came = true
		w.happen(event{kind: admitted, epoch: uint64(c.a)})
	case answersProbe:
		w.frame(event{kind: replied, epoch: w.bound, id: firstProbe + int64(c.a), frames: 1})
	case fires, lapses:
		w.pass(c)
	case opensLink, opensNot, shakes, shakesNot, endsInput, losesLink, closesLink:
		w.applyLink(c)
	default:
		w.applyLane(c)
	}
	w.checkRest()
}

// applyLink does what a link reports of itself.
func (w *scene) applyLink(c choice) {
	epoch := uint64(c.a)
	l := &w.links[c.a]
	switch c.kind {
	case opensLink:
		l.opening = false
		w.happen(event{kind: linkOpened, epoch: epoch, particulars: &particulars{link: deadLink{}}})
	case opensNot:
		l.opening = false
		w.happen(event{kind: openFailed, epoch: epoch, random: 0.5, particulars: &particulars{reason: Reason{Kind: OpenFailed}}})
	case shakes:
		l.shaking = false
		w.happen(event{kind: handshakeDone, epoch: epoch})
	case shakesNot:
		l.shaking = false
		w.happen(event{kind: handshakeFailed, epoch: epoch, random: 0.5, timeout: toldToWait, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
	case endsInput:
		l.ended = true
		w.happen(event{kind: linkEnded, epoch: epoch})
	case losesLink:
		w.loseLink(epoch, c.b == 1)
	case closesLink:
		if l.open && !l.over { // Lost is said before Close returns
			w.loseLink(epoch, false)
		}
		l.closing--
		l.gone = true
		w.happen(event{kind: linkGone, epoch: epoch})
	}
}

// loseLink reports the loss, and what surely never left: all that the link had
// taken, or nothing.
func (w *scene) loseLink(epoch uint64, unsent bool) {
	w.links[epoch].over = true
	lost := event{kind: linkLost, epoch: epoch, random: 0.5, particulars: &particulars{reason: Reason{Kind: LinkBroken}}}
	for id := range w.calls {
		c := &w.calls[id]
		if unsent && id > 0 && c.taken && !c.settled && c.epoch == epoch {
			c.unsent = true
			lost.tags = append(lost.tags, transport.Tag(id))
		}
	}
	w.happen(lost)
}

// applyLane does what a link reports of one of its streams.
func (w *scene) applyLane(c choice) {
	l := &w.lanes[c.a]
	ev := event{epoch: w.bound, stream: transport.Stream(c.a), frames: 1, last: c.b&1 == 1, random: 0.5}
	switch c.kind {
	case opensLane:
		l.opened = true
		ev.kind, ev.frames, ev.last = streamOpened, 0, false
		if c.a <= ownLanes {
			ev.id = int64(c.a)
		}
		w.happen(ev)
	case losesLane:
		l.over = true
		if c.a > ownLanes {
			w.excuse(c.a)
		}
		ev.kind, ev.frames, ev.last, ev.particulars = streamLost, 0, false, &particulars{reason: Reason{StreamLost, errGone}}
		w.happen(ev)
	case cutsLane:
		l.cut = true
		ev.kind, ev.frames, ev.last, ev.resumable = streamLost, 0, false, true
		if c.b == 1 {
			ev.timeout = time.Minute
			l.floor = w.now + ev.timeout
		}
		w.happen(ev)
	case fails:
		w.calls[c.a].failed, w.calls[c.a].unsent = true, c.b == 1
		*l = laneBook{opened: true, over: true}
		w.happen(event{kind: failed, epoch: w.bound, out: &outboundFrame{id: int64(c.a)}, err: errGone, unsent: c.b == 1})
	case replies:
		ev.kind, ev.id = replied, int64(c.b>>1)
		l.answered = l.answered || c.a == c.b>>1
		w.frame(ev)
	case faults:
		ev.kind, ev.id, ev.fault = replied, int64(c.b>>1), &jsonrpc.Error{}
		l.answered = l.answered || c.a == c.b>>1
		w.frame(ev)
	case garbles:
		ev.kind, ev.id, ev.err = malformed, int64(c.b>>1), errGone
		l.answered = l.answered || c.a == c.b>>1
		w.frame(ev)
	case progresses:
		ev.kind, ev.id = progressed, int64(c.b>>1)
		w.frame(ev)
	case notifies:
		ev.kind, ev.incoming = notified, &Incoming{}
		w.frame(ev)
	case takesBack:
		w.cancel(ev, w.plan.questions[c.b>>1].id)
	case endsOurs:
		w.cancel(ev, int64(c.b>>1))
	case sendsGarbage:
		ev.kind, ev.err = malformed, errGone
		if w.plan.role == acceptor {
			ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: []byte{'#', questions}}
		}
		w.frame(ev)
	case asks:
		w.ask(c.b)
	}
}

// frame delivers a frame, for one credit. The last one of an own stream is the
// end of it; on the peer's the answer is still to come.
func (w *scene) frame(ev event) {
	l := &w.lanes[ev.stream]
	w.heardAt = w.now
	if !l.partial {
		l.credit--
	}
	l.partial = ev.frames == 0
	if ev.last {
		l.complete = true
		l.over = l.over || ev.stream <= ownLanes
	}
	w.happen(ev)
}

func (w *scene) ask(number uint8) {
	q, book := w.plan.questions[number], &w.questions[number]
	book.asked, book.epoch = true, w.bound
	ev := event{epoch: w.bound, stream: transport.Stream(q.lane), frames: 1, last: q.lane > ownLanes && !q.more && !q.stays}
	if q.more {
		ev.frames = 0
	}
	key := incomingKey{ev.stream, jsonrpc.IntegerID(q.id)}
	if q.kind == probing {
		ev.kind, ev.out = probed, &outboundFrame{stream: ev.stream, reply: true, frame: []byte{'#', number}}
	} else {
		ev.kind = requested
		ev.incoming = &Incoming{Epoch: w.bound, Params: []byte("{}"), size: 2, key: key}
		ev.incoming.exclusive, ev.incoming.streaming, ev.incoming.nested = q.isExclusive(), q.kind == staying, q.kind == nestedly
	}
	book.incoming = ev.incoming
	for id, r := range w.core.pending.byID {
		if id < firstProbe {
			book.before[id] = r.sent && r.stream == ev.stream
		}
	}
	w.frame(ev)
}

// cancel has the peer take back what it has asked: on Main of any stream, the
// earliest of them.
func (w *scene) cancel(ev event, id int64) {
	ev.kind, ev.incoming = cancelled, &Incoming{key: incomingKey{ev.stream, jsonrpc.IntegerID(id)}}
	if in, ok := w.core.incoming.named(ev.incoming.key); ok && w.core.attached() && ev.epoch == w.core.epoch {
		w.questions[w.number(in)].excused = true
	}
	w.frame(ev)
}

// excuse notes that nothing on a lane will be answered any more.
func (w *scene) excuse(lane uint8) {
	for i, q := range w.plan.questions {
		if w.questions[i].asked && q.lane == lane {
			w.questions[i].excused = true
		}
	}
}

// number says which question this is.
func (w *scene) number(in *Incoming) int {
	for i := range w.questions {
		if w.questions[i].incoming == in {
			return i
		}
	}
	return questions
}

func (w *scene) makeCall(c choice) {
	p, id := w.plan.calls[c.a-1], int64(c.a)
	ev := event{
		kind:      callMade,
		epoch:     w.core.epoch,
		timeout:   p.timeout,
		limit:     p.limit,
		restarts:  p.restarts,
		streaming: p.streaming,
		handshake: p.by == byHandshake,
		serving:   p.by == byHandler,
		out:       &outboundFrame{id: id, call: w.plan.callers[id], frame: []byte{'c', c.a}},
	}
	if p.within > 0 {
		of := w.questions[p.within-1].incoming
		ev.epoch, ev.out.stream = of.Epoch, of.key.stream
	}
	if c.kind == callsStale {
		ev.epoch--
	}
	book := &w.calls[id]
	book.made, book.epoch = true, ev.epoch
	w.happen(ev)
}

func (w *scene) note(lane uint8, ev event) {
	ev.out = &outboundFrame{call: w.plan.callers[0], notification: true, stream: transport.Stream(lane), frame: []byte{'n', 0}}
	w.calls[0] = callBook{made: true, epoch: ev.epoch, lane: lane}
	w.happen(ev)
}

func (w *scene) handlerReturns(number uint8) {
	q := &w.questions[number]
	q.running = false
	w.happen(event{kind: handled, epoch: q.incoming.Epoch, incoming: q.incoming, payload: []byte{'#', number}})
}

// pass lets time go by until one of the deadlines, with or without the timer
// firing: it may be late, and other events come before it.
func (w *scene) pass(c choice) {
	due := w.deadlines()
	w.now = max(w.now, due[min(int(c.a), len(due)-1)])
	if c.kind == lapses {
		return
	}
	var heardAt instant
	if c.b == 1 {
		w.heardAt, heardAt = w.now, w.now
	}
	w.happen(event{kind: tick, random: 0.5, moved: w.moved, heardAt: heardAt, id: firstProbe + int64(w.probes)})
	w.checkTicked()
}

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
		may := p.by == byProgram || p.by == byHandshake && w.links[w.core.epoch].shaking || p.by == byHandler && w.handles(p, handler)
		if c := &w.calls[id]; !c.made && may {
			to = w.may(to, makesCall, id, 0)
			if w.core.epoch > 1 && p.within == 0 {
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

// handles says whether the handler runs that makes a call, or any.
func (w *scene) handles(p callPlan, any int) bool {
	if p.within > 0 {
		return w.questions[p.within-1].running
	}
	return any >= 0
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
	ours := own && c.taken && c.epoch == w.bound && !c.failed && w.plan.calls[lane-1].within == 0
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
				to = w.may(to, garbles, lane, id<<1|last)
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
