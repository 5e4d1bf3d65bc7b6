package conn

import (
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// addToDigest adds an effect to the digest of those since the last choice, for equal
// histories must have equal effects.
func (env *environment) addToDigest(fx *effect) {
	var to State
	if fx.particulars != nil {
		to = fx.to
	}
	for _, v := range [...]uint64{uint64(fx.kind), fx.epoch, uint64(fx.id), uint64(fx.stream), uint64(fx.frames), uint64(fx.cause),
		uint64(fx.delivery), uint64(fx.out.id), uint64(fx.out.stream), uint64(fx.at), uint64(len(to))} {
		env.digest = (env.digest ^ v) * 0x100000001b3
	}
}

// checkStep holds what must be true after every step of the core.
func (env *environment) checkStep(ev *event, effects []effect) {
	c := env.core
	if ev.kind == callMade && c.pending.byID[ev.out.id] != nil {
		id := ev.out.id
		env.calls[id].accepted = true
		if !env.mayAccept(ev) {
			env.fail("call %d was accepted in %s; draining: %v", id, c.state(), c.draining)
		}
	}
	env.checkOrder(effects)
	env.checkGate()
	switch state := c.state(); {
	case state != env.state:
		env.fail("in %s without a transition, from %s", state, env.state)
	case !c.attached() && (c.pending.len() > 0 || c.incoming.len() > 0 || !c.outbound.empty()):
		env.fail("in %s %d requests are pending, %d served, %d frames queued", state, c.pending.len(), c.incoming.len(), len(c.outbound.waiting()))
	case !c.attached() && (len(c.streams.others) > 0 || len(c.streams.cut) > 0 || len(c.streams.owed) > 0):
		env.fail("in %s there are streams", state)
	case c.outbound.empty() != (c.outbound.retryAt == 0):
		env.fail("%d frames are queued, to be offered again at %v", len(c.outbound.waiting()), c.outbound.retryAt)
	case len(c.tombstones.order) != c.tombstones.len() || c.tombstones.len() > ownStreams+probes+1 || (c.tombstones.len() > 0) != (c.tombstones.sweepAt != 0):
		env.fail("%d tombstones, %d in order, swept at %v", c.tombstones.len(), len(c.tombstones.order), c.tombstones.sweepAt)
	case c.incoming.running()-len(c.incoming.streaming) > c.options.MaxServing,
		len(c.incoming.streaming) > c.options.MaxStreaming, len(c.incoming.waiting) > c.options.MaxWaiting:
		env.fail("%d are served, %d stay, %d wait", c.incoming.running(), len(c.incoming.streaming), len(c.incoming.waiting))
	case len(c.incoming.waiting) > 0 && !c.incoming.closed(c.options.MaxServing):
		env.fail("%d requests wait, and there is a place", len(c.incoming.waiting))
	case c.incoming.bytes != 2*(c.incoming.len()+c.incoming.stuck):
		env.fail("%d bytes are held of %d requests, and of %d that are stuck", c.incoming.bytes, c.incoming.len(), c.incoming.stuck)
	case c.incoming.stuck > stuckPerPlace*c.options.MaxServing:
		env.fail("%d stuck handlers do not count", c.incoming.stuck)
	case c.flow.stall == NotificationsWait && !env.mayPause():
		env.fail("the link is not read, and somebody waits")
	case (c.flow.stall == NotificationsWait) != (c.flow.until != 0), c.flow.until > env.now+maxPause:
		env.fail("the link is not read, until %v", c.flow.until)
	case env.mayPause() && c.flow.pausedFor(env.now) < maxPause && !c.draining && grantsCredit(effects) && ev.kind != streamOpened && ev.kind != started && ev.kind != linkOpened:
		env.fail("credit was given to a crowd: %v", effects)
	case c.pending.len() != env.shortCalls()+env.otherPending():
		env.fail("%d are pending, of which %d wait", c.pending.len(), c.pending.calls)
	case c.liveness.every != 0 && state != Ready, c.liveness.every == 0 && (c.liveness.dueAt != 0 || c.liveness.probe != 0):
		env.fail("the peer is watched in %s", state)
	case len(c.streams.cut) != env.resumableStreams():
		env.fail("%d streams are to be taken up", len(c.streams.cut))
	}
}

// checkGate holds that whoever begins has a place or waits for one, and nobody
// else; and that no time runs for who waits.
func (env *environment) checkGate() {
	c := env.core
	begins := env.plan.gated && (c.state() == Starting || c.state() == Initializing)
	for epoch, v := range env.gateRecords {
		if at := v.asked && !v.left; at != (begins && uint64(epoch) == c.epoch) {
			env.fail("in %s epoch %d is at the gate: %v", c.state(), epoch, at)
		}
	}
	if waits := env.waitsForPlace(); begins && waits == (c.initDue != 0) {
		env.fail("it waits for a place: %v; its time is over at %v", waits, c.initDue)
	}
}

func (env *environment) waitsForPlace() bool {
	v := &env.gateRecords[env.core.epoch]
	return v.asked && !v.given && !v.left
}

func grantsCredit(effects []effect) bool {
	return slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == grant })
}

// mayPause says whether nobody misses what is not read.
func (env *environment) mayPause() bool {
	for i := range env.requests {
		in := env.requests[i].incoming
		if in == nil || env.plan.requests[i].kind == streamingRequest {
			continue
		}
		if held, ok := env.core.incoming.find(in.key); ok && held == in || env.core.incoming.isSilenced(in) {
			return false
		}
	}
	return env.crowded && env.shortCalls() == 0
}

// isSilenced says whether a cancelled request counts.
func (in *incoming) isSilenced(request *Incoming) bool {
	return slices.ContainsFunc(in.cancelled[in.stuck:], func(other cancelledRequest) bool { return other.Incoming == request })
}

// shortCalls counts the calls that somebody waits for, and not for ever.
func (env *environment) shortCalls() (n int) {
	for id, r := range env.core.pending.byID {
		if id < firstProbe && !env.plan.calls[id-1].streaming && r != nil {
			n++
		}
	}
	return n
}

// otherPending counts the others that are pending: those that stay, and the probe.
func (env *environment) otherPending() (n int) {
	for id := range env.core.pending.byID {
		if id >= firstProbe && id == env.core.liveness.probe || id < firstProbe && env.plan.calls[id-1].streaming {
			n++
		}
	}
	return n
}

// mayAccept says whether a call can be taken now.
func (env *environment) mayAccept(ev *event) bool {
	c := env.core
	ready := c.state() == Ready || c.state() == Initializing && ev.handshake
	return ready && ev.epoch == c.epoch && (!c.draining || ev.serving && !c.ended)
}

// checkOrder holds that nothing is offered past what waits, unless the rest is to
// be offered next, and that nobody but who is owed an answer waits for longer than
// three retries.
func (env *environment) checkOrder(effects []effect) {
	queue := env.core.outbound.waiting()
	more := slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == offerMore })
	for i := range effects {
		if effects[i].kind == transmit && len(queue) > 0 && !more {
			env.fail("%q was offered to the link past %d frames", effects[i].out.frame, len(queue))
		}
	}
	for i := range queue {
		if queue[i].attempts > busyRetries && !queue[i].reply {
			env.fail("%q was refused %d times", queue[i].frame, queue[i].attempts)
		}
	}
}

// resumableStreams counts the streams that the core means to take up.
func (env *environment) resumableStreams() (n int) {
	c := env.core
	for i := range env.streams {
		if s := c.streams.find(transport.Stream(i)); s != nil && s.resumeAt != 0 {
			n++
		}
	}
	return n
}

// checkSettledState holds what must be true when nothing is on its way.
func (env *environment) checkSettledState() {
	env.checkCalls()
	env.checkPeerRequests()
	env.checkStreams()
	env.checkDrain()
}

// checkCalls holds that who waits is known to the core, and nobody else.
func (env *environment) checkCalls() {
	c := env.core
	for id := range env.calls {
		record, queued := &env.calls[id], false
		for i := range c.outbound.waiting() {
			out := &c.outbound.waiting()[i]
			queued = queued || (id > 0 && out.id == int64(id)) || id == 0 && out.notification
		}
		r := c.pending.byID[int64(id)]
		waits := record.made && !record.settled
		switch {
		case id == 0 && waits != queued:
			env.fail("the notification waits: %v; it is queued: %v", waits, queued)
		case id > 0 && waits != (r != nil):
			env.fail("call %d waits: %v; it is pending: %v", id, waits, r != nil)
		case r != nil && r.sent && env.waitsOnLostStream(id, r):
			env.fail("call %d waits for an answer to what was asked on stream %d, which is lost", id, r.via)
		case r != nil && r.sent == queued, r != nil && r.sent != record.taken, r == nil && queued && id > 0:
			env.fail("call %d is queued: %v; the link has taken it: %v", id, queued, record.taken)
		}
	}
	if !env.deadlinesHold() {
		env.fail("the deadlines of what is pending are not those that were asked for")
	}
}

// waitsOnLostStream says whether a handler that runs still has asked on a stream that the link
// has lost. One that has returned, or was cancelled, does not wait any more.
func (env *environment) waitsOnLostStream(id int, r *request) bool {
	if id > len(env.plan.calls) || env.plan.calls[id-1].within == 0 {
		return false
	}
	of, streamNumber := env.requests[env.plan.calls[id-1].within-1], env.streams[r.via]
	return of.running && streamNumber.lost && !streamNumber.ended
}

func (env *environment) deadlinesHold() bool {
	for id, r := range env.core.pending.byID {
		if id >= firstProbe {
			continue
		}
		switch timeout := env.plan.calls[id-1].timeout; {
		case (timeout != 0) != (r.deadline != 0), r.deadline > r.limit, r.suspended != env.servesNestedFor(r):
			return false
		case r.suspended && r.deadline != r.limit, !r.suspended && r.deadline > env.now+timeout:
			return false
		case r.deadline != 0 && r.deadline < env.core.pending.deadline():
			return false
		}
	}
	return true
}

// servesNestedFor says whether the peer is being served in what it asks for a call's
// sake: in these worlds the call was there first.
func (env *environment) servesNestedFor(r *request) bool {
	for i, q := range env.plan.requests {
		in := env.requests[i].incoming
		if q.kind != nestedRequest || in == nil || in.key.stream != r.stream || r.deadline == 0 || !r.sent {
			continue
		}
		if held, ok := env.core.incoming.find(in.key); ok && held == in && env.requests[i].sentBefore[r.id] {
			return true
		}
	}
	return false
}

// checkPeerRequests holds that whoever asks is answered, in time.
func (env *environment) checkPeerRequests() {
	c := env.core
	for i := range env.plan.requests {
		q := &env.requests[i]
		if !q.asked || q.answered || q.noAnswerDue || q.epoch != c.epoch || !c.attached() || env.severed {
			continue
		}
		held := false
		if q.incoming != nil {
			in, ok := c.incoming.find(q.incoming.key)
			held = ok && in == q.incoming
		}
		for j := range c.outbound.waiting() {
			held = held || c.outbound.waiting()[j].reply && env.isAnswer(c.outbound.waiting()[j], i)
		}
		if !held {
			env.fail("question %d waits for an answer that will not come", i)
		}
	}
}

// checkStreams holds that credit comes back, and that no stream stays open for
// nothing.
func (env *environment) checkStreams() {
	c := env.core
	if !c.attached() || c.epoch != env.bound || env.severed || env.links[env.bound].lost {
		return
	}
	for i := range env.streams {
		l, number := &env.streams[i], transport.Stream(i)
		live := l.opened && !l.lost && !l.ended
		s := c.streams.find(number)
		switch {
		case live && !l.complete && !l.partial && !c.outbound.congested() && c.flow.stall == 0 && int(l.credit) != env.plan.credit:
			env.fail("stream %d may deliver %d frames", number, l.credit)
		case live && l.complete && i > ownStreams && (s == nil || len(s.requests) == 0) && !env.lastQueued(number):
			env.fail("stream %d stays open for nothing", number)
		case !live && s != nil:
			env.fail("stream %d is over, and the core has it still", number)
		case live && l.cut != (s.resumeAtOrZero() != 0):
			env.fail("stream %d is cut: %v; it is to be taken up at %v", number, l.cut, s.resumeAtOrZero())
		case live && l.cut && s.resumeAt < l.floor:
			env.fail("stream %d is to be taken up before its peer wants it", number)
		case live && i > 0 && i <= ownStreams && env.calls[i].settled && !env.calls[i].answered && !c.ended:
			env.fail("call %d has ended without an answer, and its stream is left", i)
		}
	}
}

func (s *stream) resumeAtOrZero() instant {
	if s == nil {
		return 0
	}
	return s.resumeAt
}

func (env *environment) lastQueued(number transport.Stream) bool {
	for _, out := range env.core.outbound.waiting() {
		if out.stream == number && out.last {
			return true
		}
	}
	return false
}

// checkDrain holds that a drained core with nothing left closes at once.
func (env *environment) checkDrain() {
	c := env.core
	idle := c.draining && c.state() == Ready && c.pending.len() == 0 && c.incoming.len() == 0 && c.outbound.empty()
	if idle && (c.idleAt == 0 || c.idleAt > env.now) {
		env.fail("drained, nothing is left, and it does not close")
	}
	if c.state() == Closing && c.deadline() != 0 && c.deadline() != c.tombstones.sweepAt && c.deadline() != c.closeDue {
		env.fail("closing, and a tick is wanted at %v", c.deadline())
	}
	if c.state() == Closing && !env.terminated && c.closeDue == 0 {
		env.fail("closing, and it never ends")
	}
	if c.role == initiator && c.deadline() == 0 && !env.waitsForPlace() && (c.state() == Starting || c.state() == Initializing || c.state() == Backoff) {
		env.fail("in %s without a deadline", c.state())
	}
}

// checkTicked holds that a tick leaves nothing that is due. What a drain has
// just offered may come back, so that alone is looked at once more.
func (env *environment) checkTicked() {
	c := env.core
	if due := c.deadline(); due != 0 && due <= env.now && due != c.idleAt {
		env.fail("at %v a tick is due at %v still", env.now, due)
	}
}
