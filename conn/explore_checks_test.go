package conn

import (
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// fold adds an effect to the digest of those since the last choice, for equal
// histories must have equal effects.
func (w *scene) fold(fx *effect) {
	var to State
	if fx.particulars != nil {
		to = fx.to
	}
	for _, v := range [...]uint64{uint64(fx.kind), fx.epoch, uint64(fx.id), uint64(fx.stream), uint64(fx.frames), uint64(fx.cause),
		uint64(fx.delivery), uint64(fx.out.id), uint64(fx.out.stream), uint64(fx.at), uint64(len(to))} {
		w.digest = (w.digest ^ v) * 0x100000001b3
	}
}

// checkStep holds what must be true after every step of the core.
func (w *scene) checkStep(ev *event, effects []effect) {
	c := w.core
	if ev.kind == callMade && c.pending.byID[ev.out.id] != nil {
		id := ev.out.id
		w.calls[id].accepted = true
		if !w.mayAccept(ev) {
			w.wrong("call %d was accepted in %s; draining: %v", id, c.state(), c.draining)
		}
	}
	w.checkOrder(effects)
	w.checkGate()
	switch state := c.state(); {
	case state != w.state:
		w.wrong("in %s without a transition, from %s", state, w.state)
	case !c.attached() && (c.pending.len() > 0 || c.incoming.len() > 0 || !c.outbound.empty()):
		w.wrong("in %s %d requests are pending, %d served, %d frames queued", state, c.pending.len(), c.incoming.len(), len(c.outbound.waiting()))
	case !c.attached() && (len(c.streams.others) > 0 || len(c.streams.cut) > 0 || len(c.streams.owed) > 0):
		w.wrong("in %s there are streams", state)
	case c.outbound.empty() != (c.outbound.retryAt == 0):
		w.wrong("%d frames are queued, to be offered again at %v", len(c.outbound.waiting()), c.outbound.retryAt)
	case len(c.tombstones.order) != c.tombstones.len() || c.tombstones.len() > ownLanes+probes+1 || (c.tombstones.len() > 0) != (c.tombstones.sweepAt != 0):
		w.wrong("%d tombstones, %d in order, swept at %v", c.tombstones.len(), len(c.tombstones.order), c.tombstones.sweepAt)
	case c.incoming.running()-len(c.incoming.streaming) > c.options.MaxServing,
		len(c.incoming.streaming) > c.options.MaxStreaming, len(c.incoming.waiting) > c.options.MaxWaiting:
		w.wrong("%d are served, %d stay, %d wait", c.incoming.running(), len(c.incoming.streaming), len(c.incoming.waiting))
	case len(c.incoming.waiting) > 0 && !c.incoming.closed(c.options.MaxServing):
		w.wrong("%d requests wait, and there is a place", len(c.incoming.waiting))
	case c.incoming.bytes != 2*(c.incoming.len()+c.incoming.stuck):
		w.wrong("%d bytes are held of %d requests, and of %d that are stuck", c.incoming.bytes, c.incoming.len(), c.incoming.stuck)
	case c.incoming.stuck > stuckPerPlace*c.options.MaxServing:
		w.wrong("%d stuck handlers do not count", c.incoming.stuck)
	case c.flow.stall == NotificationsWait && !w.mayPause():
		w.wrong("the link is not read, and somebody waits")
	case (c.flow.stall == NotificationsWait) != (c.flow.until != 0), c.flow.until > w.now+maxPause:
		w.wrong("the link is not read, until %v", c.flow.until)
	case w.mayPause() && c.flow.pausedFor(w.now) < maxPause && !c.draining && gives(effects) && ev.kind != streamOpened && ev.kind != started && ev.kind != linkOpened:
		w.wrong("credit was given to a crowd: %v", effects)
	case c.pending.len() != w.brief()+w.lasting():
		w.wrong("%d are pending, of which %d wait", c.pending.len(), c.pending.calls)
	case c.liveness.every != 0 && state != Ready, c.liveness.every == 0 && (c.liveness.dueAt != 0 || c.liveness.probe != 0):
		w.wrong("the peer is watched in %s", state)
	case len(c.streams.cut) != w.cuts():
		w.wrong("%d streams are to be taken up", len(c.streams.cut))
	}
}

// checkGate holds that whoever begins has a place or waits for one, and nobody
// else; and that no time runs for who waits.
func (w *scene) checkGate() {
	c := w.core
	begins := w.plan.gated && (c.state() == Starting || c.state() == Initializing)
	for epoch, v := range w.visits {
		if at := v.asked && !v.left; at != (begins && uint64(epoch) == c.epoch) {
			w.wrong("in %s epoch %d is at the gate: %v", c.state(), epoch, at)
		}
	}
	if waits := w.waitsForPlace(); begins && waits == (c.initDue != 0) {
		w.wrong("it waits for a place: %v; its time is over at %v", waits, c.initDue)
	}
}

func (w *scene) waitsForPlace() bool {
	v := &w.visits[w.core.epoch]
	return v.asked && !v.came && !v.left
}

func gives(effects []effect) bool {
	return slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == grant })
}

// mayPause says whether nobody misses what is not read.
func (w *scene) mayPause() bool {
	for i := range w.questions {
		in := w.questions[i].incoming
		if in == nil || w.plan.questions[i].kind == staying {
			continue
		}
		if held, ok := w.core.incoming.find(in.key); ok && held == in || w.core.incoming.isSilenced(in) {
			return false
		}
	}
	return w.crowded && w.brief() == 0
}

// isSilenced says whether a cancelled request counts.
func (in *incoming) isSilenced(request *Incoming) bool {
	return slices.ContainsFunc(in.cancelled[in.stuck:], func(other cancelledRequest) bool { return other.Incoming == request })
}

// brief counts the calls that somebody waits for, and not for ever.
func (w *scene) brief() (n int) {
	for id, r := range w.core.pending.byID {
		if id < firstProbe && !w.plan.calls[id-1].streaming && r != nil {
			n++
		}
	}
	return n
}

// lasting counts the others that are pending: those that stay, and the probe.
func (w *scene) lasting() (n int) {
	for id := range w.core.pending.byID {
		if id >= firstProbe && id == w.core.liveness.probe || id < firstProbe && w.plan.calls[id-1].streaming {
			n++
		}
	}
	return n
}

// mayAccept says whether a call can be taken now.
func (w *scene) mayAccept(ev *event) bool {
	c := w.core
	ready := c.state() == Ready || c.state() == Initializing && ev.handshake
	return ready && ev.epoch == c.epoch && (!c.draining || ev.serving && !c.ended)
}

// checkOrder holds that nothing is offered past what waits, unless the rest is to
// be offered next, and that nobody but who is owed an answer waits for longer than
// three retries.
func (w *scene) checkOrder(effects []effect) {
	queue := w.core.outbound.waiting()
	more := slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == offerMore })
	for i := range effects {
		if effects[i].kind == transmit && len(queue) > 0 && !more {
			w.wrong("%q was offered to the link past %d frames", effects[i].out.frame, len(queue))
		}
	}
	for i := range queue {
		if queue[i].attempts > busyRetries && !queue[i].reply {
			w.wrong("%q was refused %d times", queue[i].frame, queue[i].attempts)
		}
	}
}

// cuts counts the streams that the core means to take up.
func (w *scene) cuts() (n int) {
	c := w.core
	for i := range w.lanes {
		if s := c.streams.find(transport.Stream(i)); s != nil && s.resumeAt != 0 {
			n++
		}
	}
	return n
}

// checkRest holds what must be true when nothing is on its way.
func (w *scene) checkRest() {
	w.checkCalls()
	w.checkQuestions()
	w.checkLanes()
	w.checkDrain()
}

// checkCalls holds that who waits is known to the core, and nobody else.
func (w *scene) checkCalls() {
	c := w.core
	for id := range w.calls {
		book, queued := &w.calls[id], false
		for i := range c.outbound.waiting() {
			out := &c.outbound.waiting()[i]
			queued = queued || (id > 0 && out.id == int64(id)) || id == 0 && out.notification
		}
		r := c.pending.byID[int64(id)]
		waits := book.made && !book.settled
		switch {
		case id == 0 && waits != queued:
			w.wrong("the notification waits: %v; it is queued: %v", waits, queued)
		case id > 0 && waits != (r != nil):
			w.wrong("call %d waits: %v; it is pending: %v", id, waits, r != nil)
		case r != nil && r.sent && w.isForsaken(id, r):
			w.wrong("call %d waits for an answer to what was asked on stream %d, which is lost", id, r.via)
		case r != nil && r.sent == queued, r != nil && r.sent != book.taken, r == nil && queued && id > 0:
			w.wrong("call %d is queued: %v; the link has taken it: %v", id, queued, book.taken)
		}
	}
	if !w.timed() {
		w.wrong("the deadlines of what is pending are not those that were asked for")
	}
}

// isForsaken says whether a handler that runs still has asked on a stream that the link
// has lost. One that has returned, or was cancelled, does not wait any more.
func (w *scene) isForsaken(id int, r *request) bool {
	if id > len(w.plan.calls) || w.plan.calls[id-1].within == 0 {
		return false
	}
	of, lane := w.questions[w.plan.calls[id-1].within-1], w.lanes[r.via]
	return of.running && lane.over && !lane.ended
}

func (w *scene) timed() bool {
	for id, r := range w.core.pending.byID {
		if id >= firstProbe {
			continue
		}
		switch timeout := w.plan.calls[id-1].timeout; {
		case (timeout != 0) != (r.deadline != 0), r.deadline > r.limit, r.suspended != w.asksBack(r):
			return false
		case r.suspended && r.deadline != r.limit, !r.suspended && r.deadline > w.now+timeout:
			return false
		case r.deadline != 0 && r.deadline < w.core.pending.deadline():
			return false
		}
	}
	return true
}

// asksBack says whether the peer is being served in what it asks for a call's
// sake: in these worlds the call was there first.
func (w *scene) asksBack(r *request) bool {
	for i, q := range w.plan.questions {
		in := w.questions[i].incoming
		if q.kind != nestedly || in == nil || in.key.stream != r.stream || r.deadline == 0 || !r.sent {
			continue
		}
		if held, ok := w.core.incoming.find(in.key); ok && held == in && w.questions[i].before[r.id] {
			return true
		}
	}
	return false
}

// checkQuestions holds that whoever asks is answered, in time.
func (w *scene) checkQuestions() {
	c := w.core
	for i := range w.plan.questions {
		q := &w.questions[i]
		if !q.asked || q.answered || q.excused || q.epoch != c.epoch || !c.attached() || w.severed {
			continue
		}
		held := false
		if q.incoming != nil {
			in, ok := c.incoming.find(q.incoming.key)
			held = ok && in == q.incoming
		}
		for j := range c.outbound.waiting() {
			held = held || c.outbound.waiting()[j].reply && w.isAnswer(c.outbound.waiting()[j], i)
		}
		if !held {
			w.wrong("question %d waits for an answer that will not come", i)
		}
	}
}

// checkLanes holds that credit comes back, and that no stream stays open for
// nothing.
func (w *scene) checkLanes() {
	c := w.core
	if !c.attached() || c.epoch != w.bound || w.severed || w.links[w.bound].over {
		return
	}
	for i := range w.lanes {
		l, number := &w.lanes[i], transport.Stream(i)
		live := l.opened && !l.over && !l.ended
		s := c.streams.find(number)
		switch {
		case live && !l.complete && !l.partial && !c.outbound.congested() && c.flow.stall == 0 && int(l.credit) != w.plan.credit:
			w.wrong("stream %d may deliver %d frames", number, l.credit)
		case live && l.complete && i > ownLanes && (s == nil || len(s.requests) == 0) && !w.lastQueued(number):
			w.wrong("stream %d stays open for nothing", number)
		case !live && s != nil:
			w.wrong("stream %d is over, and the core has it still", number)
		case live && l.cut != (s.resumeAtOrZero() != 0):
			w.wrong("stream %d is cut: %v; it is to be taken up at %v", number, l.cut, s.resumeAtOrZero())
		case live && l.cut && s.resumeAt < l.floor:
			w.wrong("stream %d is to be taken up before its peer wants it", number)
		case live && i > 0 && i <= ownLanes && w.calls[i].settled && !w.calls[i].answered && !c.ended:
			w.wrong("call %d has ended without an answer, and its stream is left", i)
		}
	}
}

func (s *stream) resumeAtOrZero() instant {
	if s == nil {
		return 0
	}
	return s.resumeAt
}

func (w *scene) lastQueued(number transport.Stream) bool {
	for _, out := range w.core.outbound.waiting() {
		if out.stream == number && out.last {
			return true
		}
	}
	return false
}

// checkDrain holds that a drained core with nothing left closes at once.
func (w *scene) checkDrain() {
	c := w.core
	idle := c.draining && c.state() == Ready && c.pending.len() == 0 && c.incoming.len() == 0 && c.outbound.empty()
	if idle && (c.idleAt == 0 || c.idleAt > w.now) {
		w.wrong("drained, nothing is left, and it does not close")
	}
	if c.state() == Closing && c.deadline() != 0 && c.deadline() != c.tombstones.sweepAt && c.deadline() != c.closeDue {
		w.wrong("closing, and a tick is wanted at %v", c.deadline())
	}
	if c.state() == Closing && !w.terminated && c.closeDue == 0 {
		w.wrong("closing, and it never ends")
	}
	if c.role == initiator && c.deadline() == 0 && !w.waitsForPlace() && (c.state() == Starting || c.state() == Initializing || c.state() == Backoff) {
		w.wrong("in %s without a deadline", c.state())
	}
}

// checkTicked holds that a tick leaves nothing that is due. What a drain has
// just offered may come back, so that alone is looked at once more.
func (w *scene) checkTicked() {
	c := w.core
	if due := c.deadline(); due != 0 && due <= w.now && due != c.idleAt {
		w.wrong("at %v a tick is due at %v still", w.now, due)
	}
}
