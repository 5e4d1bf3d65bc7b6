//bowline:pure

package conn

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A core is one connection as a pure state machine: no goroutine, lock,
// channel, I/O, clock or randomness. Equal events at equal times give equal
// effects, so that every failure replays (ADR-0001).
type core struct {
	options *Options // with every default filled in; not changed
	dialect Dialect
	final   func(Reason) bool // Options.Final
	role    role

	machines machines // say which edges there are
	current  State    // changed by admit alone
	reason   Reason
	epoch    uint64 // of the current incarnation
	place    place  // of the current incarnation, at the gate
	linked   bool   // a link of this epoch is attached or being closed

	initDue  instant    // when starting and initializing must be over
	retryAt  instant    // when the next attempt is due
	retryWhy ReasonKind // set: the next attempt waits for the old link to be gone
	readyAt  instant
	unproven int       // losses in a row before the Conn had proved itself
	schedule *schedule // nil until a link is lost, and anew when one has proved itself

	grace    time.Duration // what the link was given to close in
	closeDue instant       // when a link that does not close is left behind

	draining bool
	ended    bool    // the peer will send nothing more
	drainDue instant // when to close whatever is left
	idleAt   instant // when to look again whether anything is left

	pending    pending
	tombstones tombstones
	incoming   incoming
	outbound   outbound
	streams    streams
	flow       flow
	liveness   liveness
	counted    bool // the present link says how much it has heard

	malformedRun int // malformed frames in a row

	out []effect
}

type role uint8

const (
	initiator role = iota // opens links, reconnects
	acceptor              // is handed one link; closes with it
)

func newCore(r role, m machines, o *Options, d Dialect) *core {
	c := &core{options: o, dialect: d, final: o.Final, role: r, machines: m}
	if c.current = Starting; r == acceptor {
		c.current = Initializing
	}
	return c
}

// step applies ev at time now; the effects are to be performed in order, and
// stay valid until the next step.
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
		c.flow.crowd(ev.kind == crowded)
	case linkOpened:
		c.onLinkOpened(ev)
	default:
		if ev.epoch != c.epoch {
			break // of an incarnation that is over
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

// onLifecycle applies what the incarnation reports of itself.
func (c *core) onLifecycle(now instant, ev *event) {
	switch ev.kind {
	case admitted:
		c.onAdmitted(now)
	case handshakeDone:
		c.becomeReady(now, Reason{Kind: Handshaken})
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

// onTraffic applies what came in on the link, or did not go out.
func (c *core) onTraffic(now instant, ev *event) {
	if !c.attached() {
		c.onAftermath(now, ev)
		return
	}
	c.streams.consume(ev.stream, ev.frames, ev.last)
	if ev.frames > 0 { // what this side does is no sign of the peer's life
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
		c.emit(effect{kind: notify, incoming: ev.incoming, epoch: ev.epoch})
	case progressed:
		c.onProgressed(now, ev)
	case cancelled:
		c.onCancelled(now, ev)
	case probed:
		c.reply(ev.out)
	case malformed:
		c.onMalformed(now, ev)
	case busy:
		c.onBusy(now, ev)
	case failed:
		c.onFailed(now, ev)
	case writable:
		c.onWritable()
	default:
		panic(fmt.Sprintf("conn: unhandled event %d", ev.kind))
	}
	if ev.frames > 0 && ev.kind != malformed {
		c.malformedRun = 0
	}
	c.finishStream(now, ev.stream)
}

// onAftermath applies what is still reported when the incarnation is over: a
// reply is counted as late, a caller is told of what did not go out, and
// nothing is begun.
func (c *core) onAftermath(now instant, ev *event) {
	switch {
	case ev.kind == replied:
		c.onReplied(now, ev)
	case ev.out.notification:
		c.settle(now, request{call: ev.out.call}, ending{LinkLost, NotSent, c.reason}, nil)
	}
}

// attached reports whether there is a link to talk on.
func (c *core) attached() bool {
	state := c.state()
	return state == Initializing || state == Ready
}

func (c *core) emit(fx effect) { c.out = append(c.out, fx) }

// rest gives up what only work needs, when none is in sight.
func (c *core) park() {
	c.out = nil
	c.pending.park()
	c.incoming.park()
	c.streams.park()
}

// maxEffects is how many effects of capacity a step keeps for the next one.
const maxEffects = 64

func (c *core) clearEffects() {
	if c.out = c.out[:0]; cap(c.out) > maxEffects {
		c.out = nil
	}
}

// onStarted begins the first incarnation.
func (c *core) onStarted(now instant, ev *event) {
	if c.role == acceptor {
		c.epoch++
		c.attach(ev.link)
		c.becomeReady(now, Reason{Kind: Started})
		return
	}
	c.begin(now)
}

// onLinkOpened attaches the link, or has it closed when nobody wants it any more.
func (c *core) onLinkOpened(ev *event) {
	if ev.epoch != c.epoch || !c.admit(opened, Reason{Kind: LinkOpened}) {
		c.emit(effect{kind: closeLink, epoch: ev.epoch, link: ev.link})
		return
	}
	c.counted = ev.counted
	c.attach(ev.link)
	c.emit(effect{kind: handshake, epoch: c.epoch})
}

// livenessEvery is how long the peer may be silent, 0 for ever.
func (c *core) livenessEvery() time.Duration {
	every := c.options.Liveness
	if every == 0 && c.counted {
		every = defaultLiveness
	}
	if c.role == acceptor {
		return 0
	}
	return max(every, 0)
}

func (c *core) attach(link transport.Link) {
	c.linked, c.closeDue = true, 0
	c.malformedRun = 0
	c.emit(effect{kind: bind, link: link, epoch: c.epoch})
	c.emit(effect{kind: grant, stream: transport.Main, frames: c.options.Credit})
}

func (c *core) becomeReady(now instant, why Reason) {
	if c.admit(handshaken, why) {
		c.leaveGate()
		c.initDue = 0
		c.readyAt = now
		c.liveness.begin(now, c.livenessEvery())
	}
}

// onTick acts on every deadline that has passed.
func (c *core) onTick(now instant, ev *event) {
	if passed(now, c.closeDue) {
		c.onLinkGone(now) // it is not, but nobody waits for it any longer
	}
	if passed(now, c.retryAt) && c.state() == Backoff {
		c.retry(now, RetryDue)
	}
	if passed(now, c.initDue) {
		c.lose(now, Reason{InitTimedOut, fmt.Errorf("no handshake within %v", c.options.InitTimeout)}, ev.random, 0, nil)
	}
	if c.draining && passed(now, c.drainDue) {
		c.end(now, Reason{Drained, fmt.Errorf("%d of our calls and %d of the peer's had not ended, and %d messages had not been sent, when the time was over", c.pending.awaited(c.liveness.probe), c.incoming.len(), len(c.outbound.queue))})
	}
	c.expireRequests(now)
	c.retrySends(now, ev)
	for _, number := range c.streams.resumable(now) {
		c.emit(effect{kind: resumeStream, epoch: c.epoch, stream: number})
	}
	c.watchPeer(now, ev)
	c.tombstones.sweep(now, c.options.TombstoneSweep)
}

func passed(now, deadline instant) bool { return deadline != 0 && deadline <= now }

// deadline is when the core wants its next tick, 0 for never. It also wants one
// at liveness.dueAt, or soon after.
func (c *core) deadline() instant {
	return earliest(c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt, c.pending.deadline(), c.streams.deadline(),
		c.flow.until, c.outbound.retryAt, c.outbound.stuckAt, c.tombstones.sweepAt)
}

func earliest(deadlines ...instant) instant {
	var first instant
	for _, d := range deadlines {
		if d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	return first
}

// grantCredit ends a step: what its frames have used is given back, unless
// there is a reason to withhold it.
func (c *core) grantCredit(now instant) {
	if len(c.streams.owed) == 0 && c.flow.stall == 0 {
		return
	}
	if c.stallFor(now, c.stallReason(now)); c.flow.stall != 0 {
		return
	}
	attached := c.attached()
	c.streams.granted(func(number transport.Stream, frames int) {
		if attached {
			c.emit(effect{kind: grant, epoch: c.epoch, stream: number, frames: frames})
		}
	})
}

// stallReason says why what was used shall not be given back yet, or 0. To
// pause is safe only while neither side waits for the other: an answer, or the
// cancellation of a request, could be what is not read.
func (c *core) stallReason(now instant) Stall {
	switch {
	case len(c.streams.owed) == 0:
		return 0
	case c.outbound.congested():
		return RepliesWait
	case c.flow.mayPause(now) && !c.draining && c.pending.calls == 0 && c.incoming.len() == len(c.incoming.streaming):
		return NotificationsWait
	default:
		return 0
	}
}

// stallFor changes what credit is withheld for.
func (c *core) stallFor(now instant, why Stall) {
	before, since := c.flow.stall, c.flow.since
	if why == before {
		return
	}
	if before != 0 {
		c.emit(effect{kind: stallEnded, epoch: c.epoch, stall: before, at: now - since})
		c.liveness.hear(now) // until now nothing could be
	}
	c.flow.change(now, why)
	if why != 0 {
		c.emit(effect{kind: stallBegun, epoch: c.epoch, stall: why})
	}
}

// watchPeer looks whether the peer was silent for too long. While nothing is
// read from it, nothing can be heard.
func (c *core) watchPeer(now instant, ev *event) {
	l := &c.liveness
	if ev.heard || c.flow.stall != 0 {
		l.hear(now)
	}
	if !passed(now, l.dueAt) || ev.id == 0 || c.state() != Ready {
		return
	}
	next, missedOne := l.watch(now)
	if missedOne {
		c.emit(effect{kind: missed, epoch: c.epoch, frames: l.missed})
	}
	switch next {
	case giveUp:
		c.lose(now, Reason{LivenessLost, fmt.Errorf("no sign of life for %v", now-l.heardAt)}, ev.random, 0, nil)
	case askForOne:
		c.probePeer(now, ev.id)
	}
}

// probePeer asks for a sign of life, in place of the probe before.
func (c *core) probePeer(now instant, id int64) {
	c.forgetProbe(now)
	probe := c.dialect.Probe()
	if probe.Method == "" { // there is no way to ask
		c.liveness = liveness{}
		return
	}
	c.liveness.probe, c.liveness.asked = id, true
	c.pending.add(request{id: id, probe: true})
	c.send(probe.request(id, new(transport.Route)))
}

func (c *core) forgetProbe(now instant) {
	if r, ok := c.pending.take(c.liveness.probe); ok {
		c.outbound.drop(r.id)
		c.settle(now, r, ending{TimedOut, r.unanswered(), ErrTimedOut}, nil)
		c.endStream(r.stream)
	}
}
