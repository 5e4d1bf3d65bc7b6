package conn

import (
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// addToDigest adds an effect to the digest of those since the last choice. With it the search checks that
// equal histories have equal effects.
func (env *environment) addToDigest(fx *effect) {
	var to State
	if fx.eventExtra != nil {
		to = fx.to
	}
	for _, v := range [...]uint64{uint64(fx.kind), fx.epoch, uint64(fx.id), uint64(fx.stream), uint64(fx.frames), uint64(fx.cause),
		uint64(fx.delivery), uint64(fx.out.id), uint64(fx.out.stream), uint64(fx.at), uint64(len(to))} {
		env.digest = (env.digest ^ v) * 0x100000001b3
	}
}

// checkStep checks what must be true after every step of the core.
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
		env.fail("in %s %d requests are pending, %d served, %d frames queued",
			state, c.pending.len(), c.incoming.len(), len(c.outbound.waiting()))
	case !c.attached() && (len(c.streams.others) > 0 || len(c.streams.cut) > 0 || len(c.streams.throttled) > 0):
		env.fail("in %s there are streams", state)
	case c.outbound.empty() != (c.outbound.retryAt == 0):
		env.fail("%d frames are queued, the next offer is at %v", len(c.outbound.waiting()), c.outbound.retryAt)
	case len(c.tombstones.order) != c.tombstones.len() || c.tombstones.len() > ownStreams+probes+1 || (c.tombstones.len() > 0) != (c.tombstones.sweepAt != 0):
		env.fail("%d tombstones, %d in order, the sweep is at %v",
			c.tombstones.len(), len(c.tombstones.order), c.tombstones.sweepAt)
	case c.incoming.running()-len(c.incoming.streaming) > c.options.MaxServing,
		len(c.incoming.streaming) > c.options.MaxStreaming, len(c.incoming.waiting) > c.options.MaxWaiting:
		env.fail("%d are served, %d of them streaming, %d wait; more than allowed",
			c.incoming.running(), len(c.incoming.streaming), len(c.incoming.waiting))
	case len(c.incoming.waiting) > 0 && !c.incoming.closed(c.options.MaxServing):
		env.fail("%d requests wait although there is a place", len(c.incoming.waiting))
	case c.incoming.bytes != 2*(c.incoming.len()+c.incoming.stuck):
		env.fail("%d bytes are counted for %d requests and %d stuck ones",
			c.incoming.bytes, c.incoming.len(), c.incoming.stuck)
	case c.incoming.stuck > stuckPerPlace*c.options.MaxServing:
		env.fail("%d stuck handlers have given up their place, more than allowed", c.incoming.stuck)
	case c.flow.stall == NotificationsWait && !env.mayPause():
		env.fail("the link is not read although a request is pending")
	case (c.flow.stall == NotificationsWait) != (c.flow.until != 0), c.flow.until > env.now+maxPause:
		env.fail("the link is not read until %v, which does not fit the stall", c.flow.until)
	case env.mayPause() && c.flow.pausedFor(env.now) < maxPause && !c.draining && grantsCredit(effects) && ev.kind != streamOpened && ev.kind != started && ev.kind != linkOpened:
		env.fail("credit was granted although many notifications wait: %v", effects)
	case c.pending.len() != env.shortCalls()+env.otherPending():
		env.fail("%d requests are pending, %d of them calls; the model has others", c.pending.len(), c.pending.calls)
	case c.liveness.every != 0 && state != Ready, c.liveness.every == 0 && (c.liveness.dueAt != 0 || c.liveness.probe != 0):
		env.fail("the peer is probed in %s", state)
	case len(c.streams.cut) != env.resumableStreams():
		env.fail("%d streams are to be resumed, the model has others", len(c.streams.cut))
	}
}

// checkGate checks that the core has or awaits a place exactly while it starts, and that InitTimeout does
// not run while it waits.
func (env *environment) checkGate() {
	c := env.core
	begins := env.plan.gated && (c.state() == Starting || c.state() == Initializing)
	for epoch, v := range env.gateRecords {
		if at := v.asked && !v.left; at != (begins && uint64(epoch) == c.epoch) {
			env.fail("in %s epoch %d is at the gate: %v", c.state(), epoch, at)
		}
	}
	if waits := env.waitsForPlace(); begins && waits == (c.initDue != 0) {
		env.fail("waiting for a place: %v, InitTimeout ends at %v", waits, c.initDue)
	}
}

func (env *environment) waitsForPlace() bool {
	v := &env.gateRecords[env.core.epoch]
	return v.asked && !v.given && !v.left
}

func grantsCredit(effects []effect) bool {
	return slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == grant })
}

// mayPause returns whether reading may be paused.
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

// isSilenced returns whether a request was cancelled, and its handler still holds its place.
func (in *incoming) isSilenced(request *Incoming) bool {
	return indexOf(in.cancelled[in.stuck:], request) >= 0
}

// shortCalls returns how many calls are pending that are not streaming.
func (env *environment) shortCalls() (n int) {
	for id, r := range env.core.pending.byID {
		if id < firstProbe && !env.plan.calls[id-1].streaming && r != nil {
			n++
		}
	}
	return n
}

// otherPending returns how many streaming calls and probes are pending.
func (env *environment) otherPending() (n int) {
	for id := range env.core.pending.byID {
		if id >= firstProbe && id == env.core.liveness.probe || id < firstProbe && env.plan.calls[id-1].streaming {
			n++
		}
	}
	return n
}

// mayAccept returns whether the core may accept a call now.
func (env *environment) mayAccept(ev *event) bool {
	c := env.core
	ready := c.state() == Ready || c.state() == Initializing && ev.handshake
	return ready && ev.epoch == c.epoch && (!c.draining || ev.serving && !c.ended)
}

// checkOrder checks that no frame is offered before those that wait, unless these are offered next, and
// that only replies are offered more than three times again.
func (env *environment) checkOrder(effects []effect) {
	queue := env.core.outbound.waiting()
	more := slices.ContainsFunc(effects, func(fx effect) bool { return fx.kind == offerMore })
	for i := range effects {
		if effects[i].kind == transmit && len(queue) > 0 && !more {
			env.fail("%q was offered to the link before %d frames that wait", effects[i].out.frame, len(queue))
		}
	}
	for i := range queue {
		if queue[i].attempts > busyRetries && !queue[i].reply {
			env.fail("%q was refused %d times", queue[i].frame, queue[i].attempts)
		}
	}
}

// resumableStreams returns how many streams the core is going to resume.
func (env *environment) resumableStreams() (n int) {
	c := env.core
	for i := range env.streams {
		if s := c.streams.find(transport.Stream(i)); s != nil && s.resumeAt != 0 {
			n++
		}
	}
	return n
}

// checkSettledState checks what must be true when no event is being stepped.
func (env *environment) checkSettledState() {
	env.checkCalls()
	env.checkPeerRequests()
	env.checkStreams()
	env.checkDrain()
}

// checkCalls checks that the core has exactly the calls that have not ended.
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
			env.fail("the notification is not settled: %v, queued: %v", waits, queued)
		case id > 0 && waits != (r != nil):
			env.fail("call %d is not settled: %v, pending: %v", id, waits, r != nil)
		case r != nil && r.sent && env.waitsOnLostStream(id, r):
			env.fail("call %d still waits for an answer on stream %d, which is lost", id, r.via)
		case r != nil && r.sent == queued, r != nil && r.sent != record.taken, r == nil && queued && id > 0:
			env.fail("call %d is queued: %v, taken by the link: %v", id, queued, record.taken)
		}
	}
	if !env.deadlinesHold() {
		env.fail("the deadlines of pending calls do not fit their timeouts")
	}
}

// waitsOnLostStream returns whether a request is a call of a handler that still runs, on a stream that
// the link has lost. A handler that has returned or was cancelled no longer waits.
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

// servesNestedFor returns whether a nested request is being served that came after this call.
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

// checkPeerRequests checks that each request that must be answered is held by the core, or its answer
// waits for the link.
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
			env.fail("request %d will not be answered", i)
		}
	}
}

// checkStreams checks that each stream has its full credit unless it is withheld, and that no stream stays
// open without a reason.
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
			env.fail("stream %d has credit for %d frames", number, l.credit)
		case live && l.complete && i > ownStreams && (s == nil || len(s.requests) == 0) && !env.lastQueued(number):
			env.fail("stream %d stays open although no answer is due on it", number)
		case !live && s != nil:
			env.fail("stream %d has ended, and the core still has it", number)
		case live && l.cut != (s.resumeAtOrZero() != 0):
			env.fail("stream %d is cut: %v, to be resumed at %v", number, l.cut, s.resumeAtOrZero())
		case live && l.cut && s.resumeAt < l.floor:
			env.fail("stream %d is to be resumed earlier than the peer asks for", number)
		case live && i > 0 && i <= ownStreams && env.calls[i].settled && !env.calls[i].answered && !c.ended:
			env.fail("call %d has ended without an answer, and its stream is still open", i)
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

// checkDrain checks that a draining core without work closes as soon as it need not refuse requests and
// the handler has got all notifications, and that every state has a deadline that needs one.
func (env *environment) checkDrain() {
	c := env.core
	idle := c.draining && c.state() == Ready && c.pending.len() == 0 && c.incoming.len() == 0 && c.outbound.empty() &&
		!(c.notified && env.handling && env.awaited)
	if idle && (c.idleAt == 0 || c.idleAt > max(env.now, c.refusing())) {
		env.fail("the core drains, has no work left, and does not close")
	}
	if c.state() == Closing && c.deadline() != 0 && c.deadline() != c.tombstones.sweepAt && c.deadline() != c.closeDue {
		env.fail("closing, with a deadline at %v", c.deadline())
	}
	if c.state() == Closing && !env.terminated && c.closeDue == 0 {
		env.fail("closing, without a time to end")
	}
	if c.role == initiator && c.deadline() == 0 && !env.waitsForPlace() && (c.state() == Starting || c.state() == Initializing || c.state() == Backoff) {
		env.fail("in %s without a deadline", c.state())
	}
}

// checkTicked checks that nothing is due after a tick, except the second look at a drain: a frame that it
// has just offered may come back.
func (env *environment) checkTicked() {
	c := env.core
	if due := c.deadline(); due != 0 && due <= env.now && due != c.idleAt {
		env.fail("at %v the deadline is still %v", env.now, due)
	}
}
