package conn

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/transport"
)

// inject steps the core as the loop does: frames that the link did not take go back to the core at once,
// in the order in which they were offered.
func (env *environment) inject(ev event) {
	env.stepCore(ev)
	for len(env.returned)+len(env.following) > 0 {
		from := &env.returned
		if len(env.returned) == 0 {
			from = &env.following
		}
		ev := (*from)[0]
		*from = (*from)[1:]
		if ev.kind == handled {
			env.requests[env.numberOf(ev.incoming)].running = false
		}
		env.stepCore(ev)
	}
	env.returned, env.following = nil, nil
}

func (env *environment) stepCore(ev event) {
	if env.tracing {
		env.trace = append(env.trace, fmt.Sprintf("  step %s", describeEvent(&ev)))
	}
	env.present = ev
	if ev.kind == woken {
		env.delay.earliest = 0
	}
	effects := env.core.step(env.now, &ev)
	for i := range effects {
		env.perform(&effects[i])
	}
	env.checkStep(&ev, effects)
}

// transmit offers a frame to the link, unless the link has refused an earlier one in this step.
func (env *environment) transmit(fx *effect) {
	out, streamNumber := fx.out, &env.streams[fx.out.stream]
	switch {
	case len(env.returned) > 0:
		env.returned = append(env.returned, event{kind: busy, epoch: fx.epoch, out: returned(out), random: 0.5})
	case out.stream > ownStreams && (streamNumber.lost || streamNumber.ended):
		env.checkUnroutable(out)
		env.returned = append(env.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: transport.ErrNoRoute, unsent: true})
	case env.severed:
		env.returned = append(env.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: transport.ErrClosed, unsent: true})
	case env.oversize && (!out.reply || out.answers != nil):
		env.oversize = false
		if n := env.answeredBy(out); n < maxPeerRequests {
			env.requests[n].large = true
		}
		env.returned = append(env.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: errLarge, unsent: true})
	case env.room == noRoom:
		env.returned = append(env.returned, event{kind: busy, epoch: fx.epoch, out: returned(out), tried: true, moved: env.moved, random: 0.5})
		env.moved, env.refused = false, true
	default:
		env.taken(out)
	}
}

var (
	errGone  = errors.New("gone")
	errLarge = errors.New("too large")
)

// taken notes that the link has taken a frame.
func (env *environment) taken(out outboundFrame) {
	env.moved = true
	if env.room == oneFrame {
		env.room = noRoom
	}
	switch {
	case out.notification:
		env.settleCall(0)
	case out.reply:
		env.answer(out)
	case out.id >= firstProbe:
	case out.id != 0:
		env.calls[out.id].taken = true
		env.checkNestedCall(out)
	}
	if out.last {
		env.endStreamOf(out.stream)
	}
}

// checkNestedCall checks that a handler's call goes out on the stream and link of its request.
func (env *environment) checkNestedCall(out outboundFrame) {
	within := env.plan.calls[out.id-1].within
	if within == 0 {
		return
	}
	if of := env.requests[within-1]; out.stream != of.incoming.key.stream || env.bound != of.incoming.Epoch {
		env.fail("a call of the handler of request %d was sent on stream %d of link %d", within-1, out.stream, env.bound)
	}
}

// fail keeps the first invariant that did not hold.
func (env *environment) fail(format string, args ...any) {
	if env.fault == nil {
		env.fault = fmt.Errorf(format, args...)
	}
}

// perform performs one effect as the loop does, and checks it against the records.
func (env *environment) perform(fx *effect) {
	if env.tracing {
		env.trace = append(env.trace, "    "+describeEffect(fx))
	}
	env.addToDigest(fx)
	env.checkAllowed(fx)
	env.checkDelay(fx)
	switch fx.kind {
	case askPlace:
		env.askPlace(fx.epoch)
	case leaveGate:
		env.leaveGate(fx.epoch)
	case openLink:
		if v := &env.gateRecords[fx.epoch]; env.plan.gated && (!v.given || v.left) {
			env.fail("link %d is opened without a place at the gate", fx.epoch)
		}
		env.checkOtherLinks(fx.epoch)
		env.links[fx.epoch].opening = true
	case bind:
		env.bind(fx)
	case handshake:
		env.links[fx.epoch].handshaking = true
	case closeLink:
		env.closeLink(fx)
	case offerMore:
		if len(env.returned) == 0 {
			env.returned = append(env.returned, event{kind: writable, epoch: fx.epoch})
		}
	case transmit:
		env.countProbe(fx.out.id)
		env.checkEpoch(fx.out)
		env.transmit(fx)
	case grant:
		env.grant(fx)
	case endStream:
		env.endStreamOf(fx.stream)
	case resumeStream:
		env.resume(fx.stream)
	case settle:
		env.settled(fx)
	case progress:
		if c := env.calls[fx.id]; c.settled || !c.accepted || fx.call != env.plan.callers[fx.id] {
			env.fail("progress for call %d, which is not pending", fx.id)
		}
	case serve:
		env.serve(fx)
	case unserved:
		if n := env.numberOf(fx.incoming); n < maxPeerRequests {
			q := &env.requests[n]
			if q.served || q.unserved {
				env.fail("request %d has ended twice", n)
			}
			q.unserved = true
		}
	case stuck: // from now on others may have its place (G-0003.17)
		if n := env.numberOf(fx.incoming); n < maxPeerRequests {
			env.requests[n].stuck = true
		}
	case cancelServing:
		if n := env.numberOf(fx.incoming); n == maxPeerRequests || !env.requests[n].running {
			env.fail("a handler is cancelled that does not run")
		}
	case transitioned:
		env.transitioned(fx)
	case late, unknown:
		env.classified(fx)
	case endTasks:
		env.expectNoAnswers()
	case notify:
		env.handling = true
	case awaitQuiet:
		if env.awaited = env.handling; !env.awaited {
			env.following = append(env.following, event{kind: quiet})
		}
	case terminate:
		if env.terminated || !env.closed {
			env.fail("the core terminated twice, or before it was closing")
		}
		env.checkOtherLinks(0)
		env.terminated = true
	}
}

// edges are the transitions that ADR-0001 allows, written a second time.
var edges = map[[2]State]bool{
	{Starting, Initializing}: true, {Initializing, Ready}: true, {Backoff, Starting}: true,
	{Starting, Backoff}: true, {Initializing, Backoff}: true, {Ready, Backoff}: true,
	{Starting, Closing}: true, {Initializing, Closing}: true, {Ready, Closing}: true, {Backoff, Closing}: true,
}

func (env *environment) transitioned(fx *effect) {
	if fx.from != env.state || !edges[[2]State{fx.from, fx.to}] || env.closed {
		env.fail("a transition from %s to %s in %s, which is not allowed", fx.from, fx.to, env.state)
	}
	if env.plan.role == acceptor && (fx.to == Backoff || fx.to == Starting) {
		env.fail("an acceptor in %s", fx.to)
	}
	if fx.to == Ready {
		env.readAt = env.now
	}
	if fx.reason.Kind == LivenessLost && env.now-env.readAt < env.leastSilence() {
		env.fail("the peer was lost after a silence of %v, too early", env.now-env.readAt)
	}
	env.state, env.closed = fx.to, fx.to == Closing
}

// leastSilence returns how long a peer must have been silent to be lost. A doubt begins a probe at once. A
// probe that something else has answered was missed at once; each other one has most of its time.
func (env *environment) leastSilence() instant {
	switch every := env.plan.liveness; {
	case env.refuted >= missesToLose:
		return 0
	case env.refuted > 0:
		return every * 3 / 4
	case env.doubts:
		return 2 * every
	default:
		return 3 * every
	}
}

// checkAllowed checks that an effect is allowed in the present state.
func (env *environment) checkAllowed(fx *effect) {
	attached := env.state == Initializing || env.state == Ready
	switch fx.kind {
	case transmit, grant, endStream, resumeStream, serve, notify, progress, handshake, violation:
		if !attached {
			env.fail("%s in %s", effectNames[fx.kind], env.state)
		}
		if stamped := fx.kind == transmit || fx.kind == serve || fx.kind == notify; stamped && fx.epoch != env.bound {
			env.fail("%s for epoch %d on link %d", effectNames[fx.kind], fx.epoch, env.bound)
		}
	}
	if !env.terminated {
		return
	}
	switch fx.kind {
	case settle:
		if fx.cause != ShutDown && fx.cause != LinkLost || fx.delivery != NotSent {
			env.fail("after the end a call was settled as %v, %v", fx.cause, fx.delivery)
		}
	case late, unknown, unserved:
	case closeLink:
		if fx.unboundLink() == nil {
			env.fail("after the end the link was closed again")
		}
	default:
		env.fail("%s after the end", effectNames[fx.kind])
	}
}

func (env *environment) askPlace(epoch uint64) {
	for i, v := range env.gateRecords {
		if v.asked && !v.left {
			env.fail("a place is asked for in epoch %d before that of epoch %d was given back", epoch, i)
		}
	}
	if v := &env.gateRecords[epoch]; v.asked || !env.plan.gated || env.state != Starting {
		env.fail("a place is asked for twice, or in %s", env.state)
	}
	env.gateRecords[epoch].asked = true
}

func (env *environment) leaveGate(epoch uint64) {
	if v := &env.gateRecords[epoch]; !v.asked || v.left {
		env.fail("a place was given back twice, or never asked for")
	}
	env.gateRecords[epoch].left = true
}

func (env *environment) checkOtherLinks(epoch uint64) {
	for i := range env.links {
		if uint64(i) != epoch && env.mustBeAwaited(&env.links[i]) {
			env.fail("link %d is opened while link %d is not closed", epoch, i)
		}
	}
}

// mustBeAwaited returns whether the next link must wait for this one: it is not closed, and its time to
// close has not passed.
func (env *environment) mustBeAwaited(l *linkRecord) bool {
	return l.open && !l.gone && (l.closing == 0 || env.now < l.closeBy)
}

func (env *environment) bind(fx *effect) {
	env.checkOtherLinks(fx.epoch)
	if env.links[fx.epoch].open {
		env.fail("link %d was bound twice", fx.epoch)
	}
	env.links[fx.epoch].open = true
	env.bound = fx.epoch
	env.streams = [maxStreams]streamRecord{{opened: true}}
	env.room, env.refused, env.severed, env.oversize = anyRoom, false, false, false
}

func (env *environment) closeLink(fx *effect) {
	l := &env.links[fx.epoch]
	if fx.unboundLink() == nil && (!l.open || l.gone) {
		env.fail("link %d was closed although it was not open", fx.epoch)
	}
	if l.closing++; l.closing > 2 || l.closing == 2 && fx.at >= env.core.options.DrainGrace {
		env.fail("link %d was closed %d times", fx.epoch, l.closing)
	}
	if fx.unboundLink() == nil {
		l.closeBy = env.now + fx.at
	}
	if env.plan.closesNow {
		l.closing--
		l.gone = true
		env.following = append(env.following, event{kind: linkGone, epoch: fx.epoch})
	}
}

func (env *environment) grant(fx *effect) {
	l := &env.streams[fx.stream]
	if l.credit += int8(fx.frames); fx.frames <= 0 || int(l.credit) > env.plan.credit {
		env.fail("credit for %d frames on stream %d, which then has %d in all", fx.frames, fx.stream, l.credit)
	}
	replies := 0
	for i := range env.core.outbound.waiting() {
		if env.core.outbound.waiting()[i].reply {
			replies++
		}
	}
	if replies >= repliesHigh && env.present.kind != streamOpened {
		env.fail("credit for stream %d although %d replies wait", fx.stream, replies)
	}
	if !l.opened || l.lost || l.ended {
		env.fail("credit for stream %d, which has ended", fx.stream)
	}
}

// endStreamOf notes that this side ends a stream, which it may do once.
func (env *environment) endStreamOf(number transport.Stream) {
	l := &env.streams[number]
	if number == transport.Main || !l.opened || l.lost || l.ended {
		env.fail("stream %d was ended although it was not open", number)
	}
	l.ended = true
}

func (env *environment) resume(number transport.Stream) {
	l := &env.streams[number]
	if !l.cut || l.lost || l.ended || env.now < l.floor {
		env.fail("stream %d was resumed although it was not cut, or too early", number)
	}
	l.cut, l.floor = false, 0
}

// checkUnroutable checks a frame on a stream of the peer that has ended. The peer may have ended it, but
// this side may do so only after the answers.
func (env *environment) checkUnroutable(out outboundFrame) {
	n := env.answeredBy(out)
	if out.reply && env.streams[out.stream].ended && (n == maxPeerRequests || !env.requests[n].noAnswerDue) {
		env.fail("%q was sent on stream %d after its end", out.frame, out.stream)
	}
	if n < maxPeerRequests {
		env.requests[n].noAnswerDue = true
	}
}

// settled checks the end of a call. Each call has one.
func (env *environment) settled(fx *effect) {
	c := &env.calls[fx.id]
	sent := c.taken && !c.unsent
	switch {
	case fx.call != env.plan.callers[fx.id]:
		env.fail("call %d settled the caller of another call", fx.id)
	case fx.id == 0 && (c.taken || fx.delivery != NotSent):
	case fx.delivery == NotSent && sent && !c.failed:
		env.fail("call %d was settled as not sent although the link had taken it", fx.id)
	case fx.delivery != NotSent && !sent && fx.cause != Answered && fx.cause != PeerError:
		env.fail("call %d was settled as %v although the link had not taken it", fx.id, fx.delivery)
	case (fx.cause == Answered || fx.cause == PeerError) != (fx.delivery == Sent):
		env.fail("call %d was settled as %v with delivery %v", fx.id, fx.cause, fx.delivery)
	case fx.delivery == Sent && !c.taken:
		env.fail("call %d was answered before the link had taken it", fx.id)
	}
	env.checkNestedEnd(fx)
	c.answered = fx.delivery == Sent
	env.settleCall(fx.id)
}

// checkNestedEnd checks that a handler whose call ends with the incarnation has been cancelled before (G-0003.18).
func (env *environment) checkNestedEnd(fx *effect) {
	if fx.id == 0 || env.state != Backoff && env.state != Closing {
		return
	}
	if within := env.plan.calls[fx.id-1].within; within != 0 && env.requests[within-1].running && !env.requests[within-1].noAnswerDue {
		env.fail("call %d was settled before the handler of request %d was cancelled", fx.id, within-1)
	}
}

func (env *environment) settleCall(id int64) {
	c := &env.calls[id]
	if !c.made || c.settled {
		env.fail("call %d was settled twice", id)
	}
	c.settled = true
}

// classified checks the effect of an answer to a request that is not pending.
func (env *environment) classified(fx *effect) {
	issued := fx.id < noID && env.calls[fx.id].accepted || fx.id >= firstProbe
	pending := env.core.pending.byID[fx.id] != nil
	if fx.kind == late && (pending || fx.id > env.core.lastID) || fx.kind == unknown && issued && !pending {
		env.fail("an answer to %d was reported as %s", fx.id, effectNames[fx.kind])
	}
}

func (env *environment) serve(fx *effect) {
	n := env.numberOf(fx.incoming)
	if n == maxPeerRequests || env.requests[n].served || env.requests[n].noAnswerDue {
		env.fail("request %d was served twice, before it came, or after it was cancelled", n)
		return
	}
	if waited := env.now - env.requests[n].askedAt; waited >= env.core.options.Patience {
		env.fail("request %d is served after it has waited for %v", n, waited)
	}
	for i, q := range env.requests {
		if q.running && q.epoch == env.core.epoch && env.plan.requests[i].isExclusive() && !q.stuck {
			env.fail("request %d is served while the exclusive request %d is", n, i)
		}
	}
	env.requests[n].served, env.requests[n].running = true, true
	if kind := env.plan.requests[n].kind; kind == immediateRequest || kind == sessionRequest {
		env.following = append(env.following, event{kind: handled, epoch: fx.epoch, incoming: fx.incoming, payload: []byte{'#', uint8(n)}})
	}
}

// answer checks a reply that the link has taken.
func (env *environment) answer(out outboundFrame) {
	n := env.answeredBy(out)
	if n == maxPeerRequests {
		return // the reply to a malformed frame
	}
	q := &env.requests[n]
	streamNumber := transport.Stream(env.plan.requests[n].streamNumber) // a request on a call's stream may be answered on Main
	if q.answered || !q.asked || out.stream != streamNumber && (out.stream != transport.Main || streamNumber > ownStreams) {
		env.fail("request %d was answered twice, or on the wrong stream %d", n, out.stream)
	}
	q.answered = true
}

// answeredBy returns the number of the request that a reply answers. The frames of handlers and probes
// have the number, and those that the core has made have the id.
func (env *environment) answeredBy(out outboundFrame) int {
	switch {
	case !out.reply:
		return maxPeerRequests
	case out.frame[0] == '#':
		return int(out.frame[1])
	}
	found := maxPeerRequests
	for i := range env.plan.requests {
		if env.isAnswer(out, i) && (found == maxPeerRequests || env.requests[found].answered) {
			found = i
		}
	}
	return found
}

// isAnswer returns whether a reply may answer this request. Several requests may have its id. An error
// that replaces a handler's answer has another text.
func (env *environment) isAnswer(out outboundFrame, number int) bool {
	q, record := env.plan.requests[number], &env.requests[number]
	if out.frame[0] == '#' {
		return int(out.frame[1]) == number
	}
	return out.reply && record.asked && out.stream == transport.Stream(q.streamNumber) &&
		record.large == bytes.Contains(out.frame, []byte("cannot be sent")) && record.large == record.served &&
		bytes.Contains(out.frame, fmt.Appendf(nil, `"id":%d`, q.id))
}

func (env *environment) expectNoAnswers() {
	for i := range env.requests {
		if env.requests[i].asked {
			env.requests[i].noAnswerDue = true
		}
	}
}

// An environment is a core and everything around it: callers, a link for each incarnation, the peer,
// handlers and the clock. It replaces the loop and the transports, and keeps the records with which the
// invariants are checked.
type environment struct {
	plan *plan
	core *core
	now  instant

	gateRecords [epochs]gateRecord // by epoch
	links       [epochs]linkRecord
	bound       uint64 // the epoch of the link that has these streams
	streams     [maxStreams]streamRecord
	calls       [ownStreams + 1]callRecord // by id; the first is that of the notification
	requests    [maxPeerRequests]requestRecord

	room     uint8 // how many frames the link has room for: noRoom, oneFrame or anyRoom
	moved    bool  // the link has taken a frame since it was last busy
	refused  bool  // the link has to report Writable
	oversize bool  // the next frame that may be is too large
	severed  bool  // nothing can be sent any more; the loss is reported later
	crowded  bool  // many notifications wait for their handler
	handling bool  // a notification waits, or its handler runs
	awaited  bool  // the core waits for the event quiet

	delay   delayRecord
	probes  uint8   // how many were sent; their ids begin at firstProbe
	readAt  instant // when bytes last came in, or the core became ready
	doubts  bool    // the link has doubted since then, and so begun a probe
	refuted uint8   // how many probes something else has answered since then
	denied  uint8   // the probes that the link has doubted, a bit each: it does so once

	state      State // according to the transitions
	closed     bool
	terminated bool

	present   event    // the event of the present step
	returned  []event  // frames that the link did not take
	following []event  // other results of the step
	trace     []string // descriptions of events and effects, if tracing
	digest    uint64   // hash of the effects since the last choice
	tracing   bool
	fault     error // the first invariant that did not hold
}

type gateRecord struct {
	asked bool // for a place at the gate
	given bool // it has the place
	left  bool
}

type linkRecord struct {
	opening     bool // Open has not returned
	open        bool // bound
	handshaking bool // the handshake has not returned
	lost        bool // the link has reported Lost
	ended       bool // the link has reported Ended
	closing     uint8
	gone        bool
	closeBy     instant // after that time the core no longer waits for it
}

type streamRecord struct {
	opened   bool
	complete bool // the peer has sent its last frame
	lost     bool // the link no longer has it
	ended    bool // this side has sent its last frame
	cut      bool // interrupted, to be resumed
	partial  bool // the rest of a batch is still to come
	answered bool // it has brought the answer
	credit   int8
	floor    instant // it must not be resumed earlier
}

type callRecord struct {
	made, accepted, settled, answered bool
	taken                             bool // the link has taken the frame
	unsent                            bool // the link has reported that it was not sent
	failed                            bool // the link has reported that it failed
	epoch                             uint64
	streamNumber                      uint8 // of a notification: the stream that it is sent on
}

type requestRecord struct {
	incoming    *Incoming
	epoch       uint64
	asked       bool
	askedAt     instant
	running     bool // its handler is running
	stuck       bool // its handler has given up its place
	served      bool
	unserved    bool // it has ended without its handler
	answered    bool
	large       bool                 // its answer was too large for the link
	sentBefore  [ownStreams + 1]bool // the calls that had been sent on its stream before it came
	noAnswerDue bool                 // it was cancelled, or its stream or link is lost
}
