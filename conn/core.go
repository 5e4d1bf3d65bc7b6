//bowline:pure

package conn

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A core is one connection as a pure state machine: it has no goroutine, lock, channel, I/O,
// clock or randomness. Equal events at equal times give equal effects, so every failure can be
// replayed (ADR-0001). Only step changes it, and park and unpark between two steps; before the
// first, the loop sets what an earlier loop has left. No field may be changed because of
// something that no event has brought: a replay would then go another way.
type core struct {
	options *Tuning // read-only; all defaults are filled in
	dialect Dialect
	final   func(Reason) bool // Options.Final

	machines        machines // the edges of the lifecycle
	current         State    // changed only by admit
	reason          Reason
	epoch           uint64 // the number of the current incarnation
	role            role
	place           place // whether the current incarnation has a place at the gate
	linked          bool  // a link of this epoch is attached or is being closed
	large           bool  // the memory of this core is too large for other Conns to reuse
	draining        bool
	heard           bool  // the peer has sent a message, in any incarnation
	installs        bool  // the peer is a process that may install itself before its first message; see Options.InitTimeout
	initDoublings   uint8 // how many init timeouts have expired in a row; see initTime
	ended           bool  // the peer sends nothing more
	reportsBytes    bool  // the present link reports when bytes come in
	requestPerProbe bool  // a probe on the present link is a separate request (transport.LinkTraits)
	detaches        bool  // the present link is a transport.Detacher, which a peer that is gone does not end

	initDue  instant    // when starting and initializing must have ended
	retryAt  instant    // when the next attempt is due
	retryWhy ReasonKind // not empty: the next attempt is due, but the old link must close first
	readyAt  instant
	unproven int32     // losses in a row of incarnations that were not proven
	audits   bool      // the handler is an Auditor
	notified bool      // a notification was passed on, and its handler may not have returned
	schedule *schedule // the delays of the backoff; nil until a link is lost, and after a proven incarnation

	grace    time.Duration // how long the link may take to close
	closeDue instant       // when the core no longer waits for the link to close

	drainDue instant // when to close even if work is unfinished
	idleAt   instant // when to check again whether work is unfinished

	lastID    int64 // the highest id ever accepted
	malformed malformedRun
	liveness  liveness
	*traffic  // nil while the core is parked and nothing is under way
}

// traffic keeps track of the messages that are under way. When none are, it is empty in every
// core, so a parked core gives its traffic to another one. What a later message could depend on
// must not be here, such as the highest id: the next core would take it for its own.
type traffic struct {
	pending    pending
	tombstones tombstones
	incoming   incoming
	outbound   outbound
	streams    streams
	flow       flow

	askedAt     instant // when the peer's latest request came; 0: long ago
	refuseUntil instant // until when a drain without work may refuse requests; 0: no longer

	out   []effect
	extra []eventExtra // of the effects
}

// isOver reports whether nothing is under way. What it does not ask about is lost when the core
// parks.
func (t *traffic) isOver() bool {
	return t.pending.len() == 0 && t.tombstones.len() == 0 && t.incoming.len() == 0 && t.incoming.stuck == 0 &&
		t.outbound.empty() && t.outbound.stuckAt == 0 && t.streams.areIdle() && t.flow == flow{}
}

type role uint8

const (
	initiator role = iota // opens links, reconnects
	acceptor              // is given one link, and closes with it
)

// newCore returns a core in its first state. It has no traffic until unpark.
func newCore(r role, m machines, o *Tuning, d Dialect) *core {
	c := &core{options: o, dialect: d, final: o.Final, role: r, machines: m}
	if c.current = Starting; r == acceptor {
		c.current = Initializing
	}
	return c
}

// step applies an event at a time. The caller must perform the effects in order, before the next
// step. The events that it names look at their incarnation themselves, where that matters to them.
// Any other event of an incarnation that has ended changes nothing, except that a request is
// reported as unserved: a handshake or answer that is slow cannot harm the next incarnation. Credit
// is granted last, and the drain is checked after that, so that both see what the whole event has
// changed.
func (c *core) step(now instant, ev *event) []effect {
	c.clearEffects()
	switch ev.kind {
	case started:
		c.onStarted(now, ev)
	case callMade:
		c.onCallMade(now, ev)
	case notificationMade:
		c.onNoticeMade(now, ev)
	case callLeft:
		c.onCallLeft(now, ev)
	case handled:
		c.onHandled(now, ev)
	case woken:
		c.onWoken(now)
	case drainAsked:
		c.onDrainAsked(now, ev)
	case stopAsked:
		c.end(now, Reason{Stopped, ev.err})
	case tick:
		c.onTick(now, ev)
	case crowded, eased:
		c.flow.setCrowded(ev.kind == crowded)
	case quiet:
		c.notified = false
	case linkOpened:
		c.onLinkOpened(ev)
	default:
		if ev.epoch != c.epoch {
			c.dropRequest(ev) // the event belongs to an incarnation that has ended
			break
		}
		if ev.kind < replied {
			c.onLifecycle(now, ev)
		} else {
			c.onTraffic(now, ev)
		}
	}
	c.grantCredit(now)
	c.finishDrain(now, ev)
	return c.out
}

// onLifecycle applies an event of the incarnation. An event that no case names is a mistake in
// the shell, and the loop turns the panic into the end of the link.
func (c *core) onLifecycle(now instant, ev *event) {
	switch ev.kind {
	case admitted:
		c.onAdmitted(now)
	case handshakeDone:
		inDoubt := c.liveness.doubted
		if c.becomeReady(now, Reason{Kind: Handshaken}); inDoubt && c.liveness.every != 0 {
			c.probeInDoubt(now, ev.id)
		}
	case openFailed, handshakeFailed, linkLost:
		c.lose(now, ev.reason, ev.random, ev.timeout, ev.tags)
	case linkEnded:
		c.onLinkEnded(now)
	case linkGone:
		c.onLinkGone(now)
	default:
		panic(fmt.Sprintf("conn: unhandled event %d", ev.kind))
	}
}

// onTraffic applies an event of the link: a message came in, or was not sent.
func (c *core) onTraffic(now instant, ev *event) {
	if !c.attached() {
		c.onLateTraffic(now, ev)
		return
	}
	// The credit of a frame counts as used before its event is handled, because the handling may
	// end the stream, and then nothing is owed to it.
	c.streams.consume(ev.stream, int(ev.frames), ev.last)
	if ev.frames > 0 { // the event is a frame from the peer
		c.liveness.hear(now)
	}
	switch ev.kind {
	case streamOpened:
		c.onStreamOpened(now, ev)
	case streamLost:
		c.onStreamLost(now, ev)
	case replied:
		c.onReplied(now, ev)
	case requested:
		c.onRequested(now, ev)
	case notified:
		c.onNotified(ev)
	case progressed:
		c.onProgressed(now, ev)
	case cancelled:
		c.onCancelled(now, ev)
	case probed:
		c.reply(*ev.out, ev.batch)
	case malformed:
		c.onMalformed(now, ev)
	case busy:
		c.onBusy(now, ev)
	case failed:
		c.onFailed(now, ev)
	case doubted:
		c.onDoubted(now, ev)
	case writable:
		c.onWritable(now, ev)
	default:
		panic(fmt.Sprintf("conn: unhandled event %d", ev.kind))
	}
	// Only a valid message shows that the peer speaks JSON-RPC: a frame that is malformed neither
	// ends the time for installing nor a run of malformed ones.
	if ev.frames > 0 && ev.kind != malformed {
		c.malformed = malformedRun{}
		c.hear(now)
		c.streams.proceed(ev.stream)
	}
	if ev.frames > 0 {
		// The frame is read to its end, so its batch no longer waits for further requests.
		c.leaveBatch(ev.batch, ev.stream)
	}
	c.finishStream(now, ev.stream)
}

// onLateTraffic applies an event of a link that is being closed. It counts a reply as late, and
// settles the caller of a notification that was not sent. Its answers come too late in any case:
// the calls were settled when the link was lost.
func (c *core) onLateTraffic(now instant, ev *event) {
	switch {
	case ev.kind == replied:
		c.onReplied(now, ev)
	case ev.notice() != nil:
		c.settle(now, request{call: ev.notice()}, ending{LinkLost, NotSent, c.reason}, nil)
	default:
		c.dropRequest(ev)
	}
}

// dropRequest reports a request that came after the end of its incarnation. Without this an
// Auditor would wait for the end of a request that nobody serves, and the link would keep its
// room.
func (c *core) dropRequest(ev *event) {
	if ev.kind == requested {
		c.leaveUnserved(ev.incoming, c.reason)
	}
}

// allowInstalling gives a process that has never sent a message more time for that. A program
// that has set InitTimeout means it, and gets no more.
func (c *core) allowInstalling() {
	c.installs = !c.heard && !c.options.setsInit
}

// hear notes that the peer has sent a message. If it is the first of a process, the process has
// started, and the rest of the handshake has InitTimeout. For other peers it changes nothing
// about time.
func (c *core) hear(now instant) {
	c.heard = true
	if !c.installs {
		return
	}
	c.installs, c.initDoublings = false, 0
	if c.initDue != 0 {
		c.initDue = now + c.initTime()
	}
}

// A malformedRun counts the malformed frames since the last valid one.
type malformedRun struct{ frames, bytes int }

// maxMalformedBytes is how many bytes of malformed frames in a row lose the link.
const maxMalformedBytes = 16 << 20

// onMalformed counts a frame that is not a valid message. After too many in a row it gives up the
// link: a child may print a banner or logs, but a peer that sends nothing else does not use
// JSON-RPC. If the frame was meant as an answer, the call that waits for it ends with an error now,
// and not at its timeout.
func (c *core) onMalformed(now instant, ev *event) {
	c.emit(effect{kind: violation, epoch: c.epoch, frames: int(ev.size), err: ev.err})
	run := &c.malformed
	run.frames++
	run.bytes += int(ev.size)
	if run.frames >= c.options.MaxMalformed || run.bytes >= maxMalformedBytes {
		c.lose(now, Reason{Malformed, fmt.Errorf("%d malformed frames (%d bytes) in a row, the last: %w", run.frames, run.bytes, ev.err)}, ev.random, 0, nil)
		return
	}
	if ev.eventExtra != nil {
		ev.id = c.pending.soleOf(ev.tags)
	}
	switch {
	case c.settleAnswered(now, ev, ending{PeerError, Sent, ev.err}): // the request gets no other answer
	case ev.out != nil:
		c.reply(*ev.out, ev.batch)
	}
}

// attached reports whether there is a link to send on. While a link is being closed there is
// none, although it still exists: what was sent on it now would be lost without anybody being
// told.
func (c *core) attached() bool {
	state := c.state()
	return state == Initializing || state == Ready
}

// credit returns how many frames the link may deliver now.
func (c *core) credit() int32 {
	if !c.attached() {
		return 0
	}
	return int32(c.streams.credit(c.options.Credit))
}

// emit adds an effect of this step. The shell performs it after the step, with the values that it
// has now: what changes later in the step does not get into it.
func (c *core) emit(fx effect) {
	if c.out == nil {
		c.out = make([]effect, 0, fewEffects)
	}
	c.out = append(c.out, fx)
}

// with returns eventExtra for an effect of this step. They last as long as the effect.
func (c *core) with(p eventExtra) *eventExtra {
	c.extra = append(c.extra, p) // if this moves the slice, the effects so far keep their own
	return &c.extra[len(c.extra)-1]
}

// fewEffects is the number of effects that most steps do not exceed.
const fewEffects = 4

// A scratch is the empty memory that only a busy core needs. Any core can use the scratch of
// another. It must hold no trace of the core that has given it up.
type scratch struct {
	traffic   *traffic
	effects   []effect
	extra     []eventExtra
	pending   pending
	serving   map[incomingKey]*Incoming
	throttled []*stream
}

// park gives up the memory that only a busy core needs. That of a core that was large goes to no
// other core, but is freed: one burst would otherwise make all Conns that share the Wheel large, one
// after the other.
func (c *core) park() scratch {
	c.clearEffects()
	given := scratch{effects: c.out, extra: c.extra, pending: c.pending.park(), serving: c.incoming.park(), throttled: c.streams.park()}
	if c.out, c.extra = nil, nil; c.large {
		given, c.large = scratch{}, false
	}
	c.outbound.park()
	if c.traffic.isOver() {
		*c.traffic = traffic{}
		given.traffic, c.traffic = c.traffic, nil
	}
	return given
}

// unpark gives the core the memory that it needs when it becomes busy again. What the core has
// kept for itself, because something is under way, stays.
func (c *core) unpark(s *scratch) {
	if c.traffic == nil {
		c.traffic = s.traffic
	}
	if c.traffic == nil {
		c.traffic = new(traffic)
	}
	if c.out == nil {
		c.out, c.extra = s.effects, s.extra
	}
	c.pending.unpark(&s.pending)
	if c.incoming.serving == nil {
		c.incoming.serving = s.serving
	}
	if c.streams.throttled == nil {
		c.streams.throttled = s.throttled
	}
	*s = scratch{}
}

// maxEffects is how much capacity a step keeps for the effects of the next one.
const maxEffects = 64

// clearEffects forgets the effects of the last step, which the shell has performed. It clears the
// eventExtra, so that a parked or waiting core keeps no link or error alive.
func (c *core) clearEffects() {
	if c.out = c.out[:0]; cap(c.out) > maxEffects {
		c.out = nil
	}
	clear(c.extra)
	c.extra = c.extra[:0]
}

// onStarted begins the first incarnation. An acceptor has no handshake of its own: the peer
// begins, and requests may come before anything else.
func (c *core) onStarted(now instant, ev *event) {
	if c.role == acceptor {
		c.epoch++
		c.detaches = ev.detaches
		c.attach(ev.eventExtra)
		c.becomeReady(now, Reason{Kind: Started})
		return
	}
	c.begin(now)
}

// onLinkOpened attaches the link, or closes it if the Conn does not want it any more. It must not
// be dropped: the transport has given it away, and the process or socket behind it would live on.
func (c *core) onLinkOpened(ev *event) {
	if ev.epoch != c.epoch || !c.admit(opened, Reason{Kind: LinkOpened}) {
		c.emit(effect{kind: closeLink, epoch: ev.epoch, eventExtra: ev.eventExtra})
		return
	}
	c.reportsBytes, c.requestPerProbe = ev.reportsBytes, ev.requestPerProbe
	c.attach(ev.eventExtra)
	c.emit(effect{kind: handshake, epoch: c.epoch})
}

// attach begins to use a link. The link must be bound before it is granted credit: it may deliver
// a frame as soon as it has some, on its own goroutine, and the receiver has to be there.
func (c *core) attach(brings *eventExtra) {
	c.linked, c.closeDue = true, 0
	c.malformed = malformedRun{}
	c.emit(effect{kind: bind, epoch: c.epoch, eventExtra: brings})
	c.emit(effect{kind: grant, stream: transport.Main, frames: c.options.Credit})
}

// becomeReady ends the handshake. The place at the gate goes back here and not earlier, since the
// gate limits how many handshakes a server has at the same time.
func (c *core) becomeReady(now instant, why Reason) {
	if c.admit(handshaken, why) {
		c.leaveGate()
		c.initDue, c.initDoublings, c.installs = 0, 0, false
		c.readyAt = now
		every := c.livenessEvery()
		c.liveness.begin(now, every, c.livenessIdle(every))
	}
}

// onTick acts on every deadline that has passed. One tick may come for several deadlines, and may
// be late, so each is compared with the time and not with the tick. The order matters only where
// one ends what the next is about: after a loss the later ones find nothing to do.
func (c *core) onTick(now instant, ev *event) {
	if passed(now, c.closeDue) {
		// The link has not closed in time. The Conn goes on without it; the shell reports the task if it hangs.
		c.onLinkGone(now)
	}
	if passed(now, c.retryAt) && c.state() == Backoff {
		c.retry(now, RetryDue)
	}
	if passed(now, c.initDue) {
		why := Reason{InitTimedOut, fmt.Errorf("no handshake within %v", c.initTime())}
		// The doubling must stop, or the shift in initTime would overflow one day.
		if c.initTime() < longestInit {
			c.initDoublings++
		}
		c.lose(now, why, ev.random, 0, nil)
	}
	if c.draining && passed(now, c.drainDue) {
		why := Reason{Drained, c.unfinished()}
		c.refuseWaiting()
		c.end(now, why)
	}
	c.expireRequests(now)
	c.abandonStuck(now)
	c.retrySends(now, ev)
	for _, number := range c.streams.resumable(now) {
		c.emit(effect{kind: resumeStream, epoch: c.epoch, stream: number})
	}
	c.watchPeer(now, ev)
	c.tombstones.sweep(now, c.options.TombstoneSweep)
}

// initTime is the time for starting and initializing. Each timeout doubles it, until the Conn
// is ready or its peer, a process, has sent its first message.
func (c *core) initTime() time.Duration {
	first := c.options.InitTimeout
	if c.installs {
		first = installTime
	}
	return max(min(first<<c.initDoublings, longestInit), first)
}

// installTime is the time that a process has until its first message: npx, uvx and docker
// download a server before they run it.
const installTime = time.Minute

// longestInit is the maximum to which timeouts extend the time of the next attempt. A
// peer that installs itself first, as with npx, is slow and not dead.
const longestInit = 2 * time.Minute

func passed(now, deadline instant) bool { return deadline != 0 && deadline <= now }

// deadline is when the core needs its next tick, 0 for never. It also needs one at
// liveness.dueAt, or soon after. A deadline that is missing here would pass unnoticed until
// another event comes, perhaps never.
func (c *core) deadline() instant {
	first := earliest(c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt)
	if c.traffic == nil {
		return first
	}
	return earliest(first, c.pending.deadline(), c.streams.deadline(), c.incoming.deadline(c.options.MaxServing),
		c.flow.until, c.outbound.retryAt, c.outbound.stuckAt, c.tombstones.sweepAt)
}

// earliest returns the first of the deadlines that are set; 0: none is.
func earliest(deadlines ...instant) instant {
	var first instant
	for _, d := range deadlines {
		if d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	return first
}
