package conn

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	noRoom uint8 = iota
	oneFrame
	anyRoom
)

func newEnvironment(p *plan) *environment {
	env := &environment{plan: p, now: time.Second, room: anyRoom, core: newBusyCore(p.role, &p.options)}
	env.core.audits = true
	if env.state = Starting; p.role == acceptor {
		env.state = Initializing
	}
	env.inject(event{kind: started, eventExtra: &eventExtra{link: deadLink{}}})
	for _, c := range p.prologue {
		env.apply(c)
	}
	return env
}

// apply makes one choice happen, with all that the loop does because of it, and checks the result.
func (env *environment) apply(c choice) {
	env.digest = 0
	switch c.kind {
	case makesCall, callsStale:
		env.makeCall(c)
	case callerLeaves:
		env.inject(event{kind: callLeft, id: int64(c.a), err: errGone})
	case makesNotification:
		env.sendNotification(0, event{kind: notificationMade, epoch: env.core.epoch})
	case makesNotificationOnStream:
		in := env.requests[c.a].incoming
		env.sendNotification(env.plan.requests[c.a].streamNumber, event{kind: notificationMade, epoch: in.Epoch, serving: true})
	case notifierLeaves:
		env.inject(event{kind: callLeft, err: errGone, out: &outboundFrame{call: env.plan.callers[0]}})
	case returnsFromHandler:
		env.handlerReturns(c.a)
	case fillsLink:
		env.room = noRoom
	case emptiesLink:
		env.room = c.a
	case reportsWritable:
		env.room, env.refused = c.a, false
		env.inject(event{kind: writable, epoch: env.bound})
	case rejectsNextFrame:
		env.oversize = true
	case closesSending:
		env.severed = true
	case drains:
		env.inject(event{kind: drainAsked, timeout: 3 * time.Second})
	case stops:
		env.inject(event{kind: stopAsked})
	case wakes:
		env.inject(event{kind: woken})
	case crowds, eases:
		if env.crowded = c.kind == crowds; env.crowded {
			env.inject(event{kind: crowded})
		} else {
			env.inject(event{kind: eased})
		}
	case handlesNotifications:
		env.handling = false
		if env.awaited {
			env.awaited = false
			env.inject(event{kind: quiet})
		}
	case admits:
		env.gateRecords[c.a].given = true
		env.inject(event{kind: admitted, epoch: uint64(c.a)})
	case answersProbe:
		env.deliver(event{kind: replied, epoch: env.bound, id: firstProbe + int64(c.a), frames: 1})
	case doubts:
		env.doubt(int64(c.a))
	case firesTimer, letsTimePass:
		env.advanceTo(c)
	case opensLink, failsToOpen, completesHandshake, failsHandshake, endsInput, losesLink, closesLink:
		env.applyLink(c)
	default:
		env.applyStream(c)
	}
	env.checkSettledState()
}

// applyLink applies an event of a link.
func (env *environment) applyLink(c choice) {
	epoch := uint64(c.a)
	l := &env.links[c.a]
	switch c.kind {
	case opensLink:
		l.opening = false
		env.inject(event{kind: linkOpened, epoch: epoch, eventExtra: &eventExtra{link: deadLink{}}})
	case failsToOpen:
		l.opening = false
		env.inject(event{kind: openFailed, epoch: epoch, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}})
	case completesHandshake:
		l.handshaking = false
		env.refuted = 0
		env.inject(event{kind: handshakeDone, epoch: epoch, id: firstProbe + int64(env.probes)})
	case failsHandshake:
		l.handshaking = false
		env.inject(event{kind: handshakeFailed, epoch: epoch, random: 0.5, timeout: peerDelay, eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}})
	case endsInput:
		l.ended = true
		env.inject(event{kind: linkEnded, epoch: epoch})
	case losesLink:
		env.loseLink(epoch, c.b == 1)
	case closesLink:
		if l.open && !l.lost { // the link reports Lost before Close returns
			env.loseLink(epoch, false)
		}
		l.closing--
		l.gone = true
		env.inject(event{kind: linkGone, epoch: epoch})
	}
}

// loseLink reports the loss of a link. If unsent is set, none of the frames that it had taken were sent.
func (env *environment) loseLink(epoch uint64, unsent bool) {
	env.links[epoch].lost = true
	lost := event{kind: linkLost, epoch: epoch, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}}
	for id := range env.calls {
		c := &env.calls[id]
		if unsent && id > 0 && c.taken && !c.settled && c.epoch == epoch {
			c.unsent = true
			lost.tags = append(lost.tags, transport.Tag(id))
		}
	}
	env.inject(lost)
}

// applyStream does what a link reports of one of its streams.
func (env *environment) applyStream(c choice) {
	l := &env.streams[c.a]
	ev := event{epoch: env.bound, stream: transport.Stream(c.a), frames: 1, last: c.b&1 == 1, random: 0.5}
	switch c.kind {
	case opensStream:
		l.opened = true
		ev.kind, ev.frames, ev.last = streamOpened, 0, false
		if c.a <= ownStreams {
			ev.id = int64(c.a)
		}
		env.inject(ev)
	case losesStream:
		l.lost = true
		if c.a > ownStreams {
			env.expectNoAnswerOn(c.a)
		}
		ev.kind, ev.frames, ev.last, ev.eventExtra = streamLost, 0, false, &eventExtra{reason: Reason{StreamLost, errGone}}
		env.inject(ev)
	case losesReader:
		for i := range env.requests {
			if in := env.requests[i].incoming; in != nil && env.core.incoming.waitingByKey[in.key] == in && in.key.stream == ev.stream {
				env.requests[i].noAnswerDue = true
			}
		}
		ev.kind, ev.frames, ev.last, ev.serving, ev.eventExtra = streamLost, 0, false, true, &eventExtra{reason: Reason{StreamLost, errGone}}
		env.inject(ev)
		if slices.ContainsFunc(env.core.incoming.waiting, func(in dueRequest) bool { return in.key.stream == ev.stream }) {
			env.fail("a request still waits on stream %d, which nobody reads", ev.stream)
		}
	case cutsStream:
		l.cut = true
		ev.kind, ev.frames, ev.last, ev.resumable = streamLost, 0, false, true
		if c.b == 1 {
			ev.timeout = time.Minute
			l.floor = env.now + ev.timeout
		}
		env.inject(ev)
	case fails:
		env.calls[c.a].failed, env.calls[c.a].unsent = true, c.b == 1
		*l = streamRecord{opened: true, lost: true}
		env.inject(event{kind: failed, epoch: env.bound, out: &outboundFrame{id: int64(c.a)}, err: errGone, unsent: c.b == 1})
	case replies:
		ev.kind, ev.id = replied, int64(c.b>>1)
		l.answered = l.answered || c.a == c.b>>1
		env.deliver(ev)
	case answersError:
		ev.kind, ev.id, ev.fault = replied, int64(c.b>>1), &jsonrpc.Error{}
		l.answered = l.answered || c.a == c.b>>1
		env.deliver(ev)
	case answersMalformed:
		ev.kind, ev.id, ev.err = malformed, int64(c.b>>1), errGone
		l.answered = l.answered || c.a == c.b>>1
		env.deliver(ev)
	case progresses:
		ev.kind, ev.id = progressed, int64(c.b>>1)
		env.deliver(ev)
	case notifies:
		ev.kind, ev.incoming = notified, &Incoming{}
		env.deliver(ev)
	case cancelsRequest:
		env.deliverCancellation(ev, env.plan.requests[c.b>>1].id)
	case cancelsOwnCall:
		env.deliverCancellation(ev, int64(c.b>>1))
	case sendsMalformed:
		ev.kind, ev.err = malformed, errGone
		if env.plan.role == acceptor {
			ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: []byte{'#', maxPeerRequests}}
		}
		env.deliver(ev)
	case sendsRequest:
		env.deliverRequest(c.b)
	}
}

// deliver lets a frame come in, which uses one credit. The last frame of a call's stream ends that
// stream. On a stream of the peer the answer is still due.
func (env *environment) deliver(ev event) {
	l := &env.streams[ev.stream]
	env.hear()
	if !l.partial {
		l.credit--
	}
	l.partial = ev.frames == 0
	if ev.last {
		l.complete = true
		l.lost = l.lost || ev.stream <= ownStreams
	}
	env.inject(ev)
}

func (env *environment) deliverRequest(number uint8) {
	q, record := env.plan.requests[number], &env.requests[number]
	record.asked, record.askedAt, record.epoch = true, env.now, env.bound
	ev := event{epoch: env.bound, stream: transport.Stream(q.streamNumber), frames: 1, last: q.streamNumber > ownStreams && !q.more && !q.staysOpen}
	if q.more {
		ev.frames = 0
	}
	key := incomingKey{ev.stream, jsonrpc.IntegerID(q.id)}
	if q.kind == probeRequest {
		ev.kind, ev.out = probed, &outboundFrame{stream: ev.stream, reply: true, frame: []byte{'#', number}}
	} else {
		ev.kind = requested
		ev.incoming = &Incoming{Epoch: env.bound, Params: []byte("{}"), size: 2, key: key}
		ev.incoming.exclusive, ev.incoming.streaming, ev.incoming.nested = q.isExclusive(), q.kind == streamingRequest, q.kind == nestedRequest
	}
	record.incoming = ev.incoming
	for id, r := range env.core.pending.byID {
		if id < firstProbe {
			record.sentBefore[id] = r.sent && r.stream == ev.stream
		}
	}
	env.deliver(ev)
}

// deliverCancellation lets the peer cancel its request. On Main that is the earliest one with the id, on
// whichever stream.
func (env *environment) deliverCancellation(ev event, id int64) {
	ev.kind, ev.incoming = cancelled, &Incoming{key: incomingKey{ev.stream, jsonrpc.IntegerID(id)}}
	if in, ok := env.core.incoming.named(ev.incoming.key); ok && env.core.attached() && ev.epoch == env.core.epoch {
		env.requests[env.numberOf(in)].noAnswerDue = true
	}
	env.deliver(ev)
}

// expectNoAnswerOn notes that the requests of a stream are not answered any more.
func (env *environment) expectNoAnswerOn(streamNumber uint8) {
	for i, q := range env.plan.requests {
		if env.requests[i].asked && q.streamNumber == streamNumber {
			env.requests[i].noAnswerDue = true
		}
	}
}

// numberOf returns the number of a request in the plan, or maxPeerRequests.
func (env *environment) numberOf(in *Incoming) int {
	for i := range env.requests {
		if env.requests[i].incoming == in {
			return i
		}
	}
	return maxPeerRequests
}

func (env *environment) makeCall(c choice) {
	p, id := env.plan.calls[c.a-1], int64(c.a)
	ev := event{
		kind:      callMade,
		epoch:     env.core.epoch,
		timeout:   p.timeout,
		limit:     p.limit,
		restarts:  p.restarts,
		streaming: p.streaming,
		handshake: p.by == byHandshake,
		serving:   p.by == byHandler,
		out:       &outboundFrame{id: id, call: env.plan.callers[id], frame: []byte{'c', c.a}},
	}
	if p.within > 0 {
		of := env.requests[p.within-1].incoming
		ev.epoch, ev.out.stream = of.Epoch, of.key.stream
	}
	if c.kind == callsStale {
		ev.epoch--
	}
	record := &env.calls[id]
	record.made, record.epoch = true, ev.epoch
	env.inject(ev)
}

func (env *environment) sendNotification(streamNumber uint8, ev event) {
	ev.out = &outboundFrame{call: env.plan.callers[0], notification: true, stream: transport.Stream(streamNumber), frame: []byte{'n', 0}}
	env.calls[0] = callRecord{made: true, epoch: ev.epoch, streamNumber: streamNumber}
	env.inject(ev)
}

func (env *environment) handlerReturns(number uint8) {
	q := &env.requests[number]
	q.running = false
	env.inject(event{kind: handled, epoch: q.incoming.Epoch, incoming: q.incoming, payload: []byte{'#', number}})
}

// advanceTo lets time pass until one of the deadlines. The timer may fire late, so that other events
// come before the tick.
func (env *environment) advanceTo(c choice) {
	due := env.deadlines()
	env.now = max(env.now, due[min(int(c.a), len(due)-1)])
	if c.kind == letsTimePass {
		return
	}
	var readAt instant
	if c.b == 1 {
		if env.now > env.readAt {
			env.hear()
		}
		readAt = env.now
	}
	env.inject(event{kind: tick, random: 0.5, moved: env.moved, readAt: readAt, id: firstProbe + int64(env.probes)})
	env.checkTicked()
}

// doubt lets something else than the peer answer a message, which may be the present probe. When that
// happens to two probes in a row, the link must be lost.
func (env *environment) doubt(id int64) {
	c := env.core
	if id >= firstProbe {
		env.denied |= 1 << (id - firstProbe)
	}
	switch probing := c.pending.byID[c.liveness.probe] != nil; {
	case probing && id == c.liveness.probe:
		env.refuted++
	case !probing:
		env.doubts = true
	}
	env.inject(event{kind: doubted, epoch: env.bound, id: firstProbe + int64(env.probes), out: &outboundFrame{id: id}, err: errGone, random: 0.5})
	if env.refuted >= missesToLose && c.state() == Ready {
		env.fail("something else has answered %d probes in a row, and the link is not lost", env.refuted)
	}
}

// hear notes that bytes of the peer have come in. That refutes no doubt of a handshake that still runs.
func (env *environment) hear() {
	if env.readAt = env.now; env.core.state() == Ready {
		env.doubts, env.refuted = false, 0
	}
}

// choices appends what may happen next.
func (env *environment) choices(to []choice) []choice {
	if env.core.epoch > env.plan.epochs || env.probes > probes {
		return to
	}
	to = env.programChoices(to)
	to = env.clockChoices(to)
	for epoch := range env.links {
		if v := &env.gateRecords[epoch]; v.asked && !v.given { // it may still come after the core has left the gate
			to = env.addChoice(to, admits, uint8(epoch), 0)
		}
		to = env.linkChoices(to, uint8(epoch))
	}
	if !env.mayReport(env.bound) {
		return to
	}
	if env.plan.liveness != 0 {
		to = env.addChoice(to, doubts, noID, 0)
		for probe := max(env.probes, 2) - 2; probe < env.probes; probe++ {
			if env.denied&(1<<probe) == 0 {
				to = env.addChoice(to, doubts, firstProbe+probe, 0)
			}
		}
	}
	to = env.sendChoices(to)
	for streamNumber := range env.streams {
		to = env.streamChoices(to, uint8(streamNumber))
	}
	for number := range env.plan.requests {
		if q := env.plan.requests[number]; env.mayDeliver(q.streamNumber) && !env.requests[number].asked && env.inOrder(number) {
			to = env.addChoice(to, sendsRequest, q.streamNumber, uint8(number))
		}
	}
	return to
}

func (env *environment) addChoice(to []choice, kind choiceKind, a, b uint8) []choice {
	if env.plan.events.has(kind) {
		to = append(to, choice{kind, a, b})
	}
	return to
}

// mayReport returns whether a link may still report events.
func (env *environment) mayReport(epoch uint64) bool {
	return env.links[epoch].open && !env.links[epoch].lost
}

// mayDeliver returns whether a stream may deliver a frame now. A stream that this side has ended may
// have delivered it before.
func (env *environment) mayDeliver(streamNumber uint8) bool {
	l := &env.streams[streamNumber]
	return l.opened && !l.complete && !l.lost && !l.cut && (l.credit > 0 || l.partial) && !env.links[env.bound].ended
}

// inOrder returns whether a request may come now: the rest of a batch comes directly after its
// beginning, and a stream of the peer has one frame.
func (env *environment) inOrder(number int) bool {
	streamNumber := env.plan.requests[number].streamNumber
	if number > 0 && env.plan.requests[number-1].more {
		return env.streams[streamNumber].partial
	}
	return !env.streams[streamNumber].partial
}

func (env *environment) programChoices(to []choice) []choice {
	handler := slices.IndexFunc(env.requests[:], func(q requestRecord) bool { return q.running })
	for i, p := range env.plan.calls {
		id := uint8(i + 1)
		may := p.by == byProgram || p.by == byHandshake && env.links[env.core.epoch].handshaking || p.by == byHandler && env.handlerRuns(p, handler)
		if c := &env.calls[id]; !c.made && may {
			to = env.addChoice(to, makesCall, id, 0)
			if env.core.epoch > 1 && p.within == 0 {
				to = env.addChoice(to, callsStale, id, 0)
			}
		} else if c.made && !c.settled {
			to = env.addChoice(to, callerLeaves, id, 0)
		}
	}
	if n := &env.calls[0]; !n.made {
		to = env.addChoice(to, makesNotification, 0, 0)
		if handler >= 0 {
			to = env.addChoice(to, makesNotificationOnStream, uint8(handler), 0)
		}
	} else if !n.settled {
		to = env.addChoice(to, notifierLeaves, 0, 0)
	}
	for i := range env.requests {
		if env.requests[i].running {
			to = env.addChoice(to, returnsFromHandler, uint8(i), 0)
		}
	}
	if env.crowded {
		to = env.addChoice(to, eases, 0, 0)
	} else {
		to = env.addChoice(to, crowds, 0, 0)
	}
	if env.handling {
		to = env.addChoice(to, handlesNotifications, 0, 0)
	}
	to = env.addChoice(to, drains, 0, 0)
	to = env.addChoice(to, stops, 0, 0)
	return env.addChoice(to, wakes, 0, 0)
}

// handlerRuns returns whether the handler that makes a call is running, or any handler.
func (env *environment) handlerRuns(p callPlan, any int) bool {
	if p.within > 0 {
		return env.requests[p.within-1].running
	}
	return any >= 0
}

func (env *environment) clockChoices(to []choice) []choice {
	due := len(env.deadlines())
	for i := range due {
		if i == 0 || i == due-1 {
			to = env.addChoice(to, firesTimer, uint8(i), 0)
			if env.core.liveness.dueAt != 0 {
				to = env.addChoice(to, firesTimer, uint8(i), 1)
			}
		}
	}
	if due > 0 && env.core.deadline() > env.now {
		to = env.addChoice(to, letsTimePass, 0, 0)
	}
	return to
}

func (env *environment) linkChoices(to []choice, epoch uint8) []choice {
	l := &env.links[epoch]
	if l.opening {
		to = env.addChoice(to, opensLink, epoch, 0)
		to = env.addChoice(to, failsToOpen, epoch, 0)
	}
	if l.handshaking {
		to = env.addChoice(to, completesHandshake, epoch, 0)
		to = env.addChoice(to, failsHandshake, epoch, 0)
	}
	if l.open && !l.lost {
		to = env.addChoice(to, losesLink, epoch, 0)
		to = env.addChoice(to, losesLink, epoch, 1)
		if !l.ended && !env.partial() {
			to = env.addChoice(to, endsInput, epoch, 0)
		}
	}
	if l.closing > 0 {
		to = env.addChoice(to, closesLink, epoch, 0)
	}
	return to
}

func (env *environment) partial() bool {
	return slices.ContainsFunc(env.streams[:], func(l streamRecord) bool { return l.partial })
}

func (env *environment) sendChoices(to []choice) []choice {
	switch {
	case env.severed:
		return to
	case env.room == anyRoom:
		to = env.addChoice(to, fillsLink, 0, 0)
	default:
		to = env.addChoice(to, emptiesLink, anyRoom, 0)
		if env.room == noRoom {
			to = env.addChoice(to, emptiesLink, oneFrame, 0)
		}
	}
	if env.refused {
		to = env.addChoice(to, reportsWritable, oneFrame, 0)
		to = env.addChoice(to, reportsWritable, anyRoom, 0)
	}
	if !env.oversize {
		to = env.addChoice(to, rejectsNextFrame, 0, 0)
	}
	return env.addChoice(to, closesSending, 0, 0)
}

func (env *environment) streamChoices(to []choice, streamNumber uint8) []choice {
	l, own := &env.streams[streamNumber], streamNumber > 0 && int(streamNumber) <= len(env.plan.calls)
	c := &callRecord{}
	if own {
		c = &env.calls[streamNumber]
	}
	ours := own && c.taken && c.epoch == env.bound && !c.failed && env.plan.calls[streamNumber-1].within == 0
	switch {
	case !l.opened && (ours || streamNumber > ownStreams):
		to = env.addChoice(to, opensStream, streamNumber, 0)
	case streamNumber > 0 && l.opened && !l.lost && !l.partial && !l.cut:
		to = env.addChoice(to, losesStream, streamNumber, 0)
	}
	if streamNumber > ownStreams && l.opened && !l.lost && !l.ended && !l.partial {
		to = env.addChoice(to, losesReader, streamNumber, 0)
	}
	if ours && !l.lost && !l.answered && !env.links[env.bound].ended {
		to = env.addChoice(to, fails, streamNumber, 0)
		to = env.addChoice(to, fails, streamNumber, 1)
	}
	if l.opened && !l.lost && !l.cut && streamNumber <= ownStreams {
		to = env.addChoice(to, cutsStream, streamNumber, 0)
		to = env.addChoice(to, cutsStream, streamNumber, 1)
	}
	if env.mayDeliver(streamNumber) && !l.partial {
		to = env.frameChoices(to, streamNumber)
	}
	return to
}

func (env *environment) frameChoices(to []choice, streamNumber uint8) []choice {
	last := uint8(0)
	if streamNumber > 0 {
		last = 1
	}
	if streamNumber <= ownStreams {
		for i := range env.plan.calls {
			if id := uint8(i + 1); streamNumber == 0 || streamNumber == id {
				to = env.addChoice(to, replies, streamNumber, id<<1|last)
				to = env.addChoice(to, answersError, streamNumber, id<<1|last)
				to = env.addChoice(to, answersMalformed, streamNumber, id<<1|last)
				to = env.addChoice(to, progresses, streamNumber, id<<1)
			}
		}
		for i, p := range env.plan.calls {
			if id := uint8(i + 1); p.streaming && (streamNumber == 0 || streamNumber == id) && env.calls[id].made {
				to = env.addChoice(to, cancelsOwnCall, streamNumber, id<<1|last)
			}
		}
		to = env.addChoice(to, replies, streamNumber, noID<<1)
	}
	for probe := max(env.probes, 2) - 2; probe < env.probes && streamNumber == 0; probe++ {
		to = env.addChoice(to, answersProbe, probe, 0)
	}
	to = env.addChoice(to, notifies, streamNumber, last)
	to = env.addChoice(to, sendsMalformed, streamNumber, last)
	for i, q := range env.plan.requests {
		if env.requests[i].asked && (streamNumber == 0 || streamNumber == q.streamNumber) {
			to = env.addChoice(to, cancelsRequest, streamNumber, uint8(i)<<1|last)
		}
	}
	return to
}

// deadlines returns the times at which the core has something to do, in order.
func (env *environment) deadlines() []instant {
	c := env.core
	var due [20]instant
	all := append(due[:0], c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt, c.outbound.retryAt, c.outbound.stuckAt,
		c.tombstones.sweepAt, c.streams.main.resumeAt, c.flow.until, c.liveness.dueAt, c.incoming.deadline(c.options.MaxServing))
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
