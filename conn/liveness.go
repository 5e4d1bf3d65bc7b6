//bowline:pure

package conn

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// liveness detects a peer that is gone. It probes a silent peer, and when the peer has missed two
// probes, the link is lost (ADR-0025). It may lose a link too late, but must not lose one whose
// peer is there: a false alarm ends every call of the link.
type liveness struct {
	every   time.Duration // how long the peer may be silent; 0: no limit
	idle    time.Duration // the same while nothing waits for the peer
	readAt  instant       // when the peer was last heard
	dueAt   instant       // when to check again
	probe   int64         // the id of the last probe; 0: none yet
	asked   bool          // whether the peer has been silent since the last probe
	doubted bool          // whether the link doubted before the end of the handshake that the peer is there
	missed  uint8         // how many probes in a row the peer did not react to

	doubtedAt instant // when the link doubted that last
}

const (
	defaultLiveness = 5 * time.Second
	missesToLose    = 2

	// doubtfulLiveness is how long after a probe that something else than the peer has
	// answered the next one is sent at the latest.
	doubtfulLiveness = 5 * time.Second

	// idleLiveness is how long the peer of a link whose probes are requests of their
	// own may be silent while nothing waits for it.
	idleLiveness = time.Minute
)

// hear notes that the peer was heard, perhaps some time ago. A doubt that came later
// remains.
func (l *liveness) hear(at instant) {
	if l.readAt = at; at >= l.doubtedAt {
		l.asked, l.missed = false, 0
	}
}

// begin begins to watch a peer.
func (l *liveness) begin(now instant, every, idle time.Duration) {
	*l = liveness{every: every, idle: idle, readAt: now}
	if every > 0 {
		l.dueAt = now + every
	}
}

// await notes that something waits for the peer from now on. The peer is then probed after
// the shorter time. That begins now, even if the peer was silent before, because nothing
// had asked it for anything.
func (l *liveness) await(now instant) {
	if l.dueAt > now+l.every {
		l.dueAt = now + l.every
	}
}

// A reaction is what to do about a peer that is silent.
type reaction uint8

const (
	keepWaiting reaction = iota
	sendProbe
	giveUp
)

// watch decides what to do at dueAt, and reports whether the peer has missed another probe. If
// nothing waits for the peer, and it was heard after the last probe, the longer time applies. It
// never gives up at the first silence: a peer has the time of two probes to say anything.
func (l *liveness) watch(now instant, waits bool) (next reaction, missed bool) {
	silence := l.every
	if !waits && !l.asked {
		silence = l.idle
	}
	refuted := l.missed > 0 && !l.asked // something else has answered the last probe
	if !refuted && now-l.readAt < silence {
		l.dueAt = l.readAt + silence
		return keepWaiting, false
	}
	if l.asked {
		l.missed++
	}
	if l.missed >= missesToLose {
		return giveUp, l.asked
	}
	// If the tick is a little late, the delays do not add up. If it is very late,
	// the peer still gets most of its time.
	l.dueAt = max(l.dueAt+l.every, now+l.every*3/4)
	return sendProbe, l.asked
}

// livenessEvery is how long the peer may be silent; 0 means forever. An acceptor probes only if the program has set a time:
// its link reports that the client is gone (ADR-0025).
func (c *core) livenessEvery() time.Duration {
	every := c.options.Liveness
	if every == 0 && c.reportsBytes && c.role == initiator {
		every = defaultLiveness
	}
	return max(every, 0)
}

// livenessIdle is how long the peer may be silent while nothing waits for it. If the
// program has set a time, that always applies.
func (c *core) livenessIdle(every time.Duration) time.Duration {
	if c.options.Liveness == 0 && c.requestPerProbe {
		return idleLiveness
	}
	return every
}

// awaitsPeer reports whether something waits for the peer: a call, a listener, or,
// as the dialect knows, a subscription.
func (c *core) awaitsPeer() bool {
	if c.pending.awaited(c.liveness.probe) > 0 {
		return true
	}
	subscribed, ok := c.dialect.(Awaiting)
	return ok && subscribed.Awaits()
}

// watchPeer sends a probe to a peer that has been silent for too long, or gives it up.
// While credit is withheld, the link is not read, so silence means nothing.
func (c *core) watchPeer(now instant, ev *event) {
	l := &c.liveness
	if c.flow.stall != 0 || ev.away {
		l.hear(now)
	} else if ev.readAt > l.readAt {
		l.hear(ev.readAt)
	}
	// Without an id there is no probe: the shell draws one only when it believes that a probe is
	// due.
	if !passed(now, l.dueAt) || ev.id == 0 || c.state() != Ready {
		return
	}
	next, missedOne := l.watch(now, c.awaitsPeer())
	if missedOne {
		c.emit(effect{kind: missed, epoch: c.epoch, frames: int(l.missed)})
	}
	switch next {
	case giveUp:
		c.giveUpPeer(now, ev)
	case sendProbe:
		c.probePeer(now, ev.id)
	}
}

// giveUpPeer ends the link to a peer that has missed its probes, or only the connection on which it listens, if the peer can come back
// with another one.
func (c *core) giveUpPeer(now instant, ev *event) {
	l := &c.liveness
	if c.detaches {
		c.forgetProbe(now)
		c.emit(effect{kind: detach, epoch: c.epoch})
		l.begin(now, l.every, l.idle)
	} else {
		c.lose(now, Reason{LivenessLost, fmt.Errorf("no sign of life for %v", (now - l.readAt).Round(time.Millisecond))}, ev.random, 0, nil)
	}
}

// onDoubted handles the news that something else than the peer has answered a message. The
// first such answer starts a probe. If a probe is answered so, too, it was missed, and the
// next one follows soon.
func (c *core) onDoubted(now instant, ev *event) {
	l := &c.liveness
	_, probing := c.pending.byID[l.probe]
	switch {
	case c.state() != Ready:
		l.doubted = true
	case l.every == 0: // the peer is not watched
	case probing && ev.out.id == l.probe:
		l.doubtedAt, l.asked = now, false
		l.missed++
		c.emit(effect{kind: missed, epoch: c.epoch, frames: int(l.missed)})
		if l.dueAt = min(l.dueAt, now+doubtfulLiveness); l.missed >= missesToLose {
			c.lose(now, Reason{LivenessLost, fmt.Errorf("something else has answered %d probes: %w", missesToLose, ev.err)}, ev.random, 0, nil)
		}
	case !probing && l.missed == 0:
		c.probeInDoubt(now, ev.id)
	}
}

// probeInDoubt asks the peer itself, at once. Only an answer to a probe counts then: whatever the
// thing in between sends is no sign of life.
func (c *core) probeInDoubt(now instant, id int64) {
	l := &c.liveness
	l.doubtedAt, l.dueAt = now, now+l.every
	c.probePeer(now, id)
}

// probePeer sends a probe, which replaces the previous one. There is one at a time: two would
// count one silence twice.
func (c *core) probePeer(now instant, id int64) {
	c.forgetProbe(now)
	probe := c.dialect.Probe()
	if probe.Method == "" { // the dialect has no probe
		if l := &c.liveness; c.role == acceptor { // before the peer has said which protocol it speaks
			l.begin(now, l.every, l.idle)
		} else {
			c.liveness = liveness{}
		}
		return
	}
	c.liveness.probe, c.liveness.asked = id, true
	c.track(request{id: id, probe: true})
	c.send(probe.request(id, new(transport.Route)))
}

// forgetProbe ends the last probe without an answer. It becomes a tombstone if it was sent, so an
// answer that comes late is not reported as unknown.
func (c *core) forgetProbe(now instant) {
	if r, ok := c.pending.take(c.liveness.probe); ok {
		c.outbound.drop(r.id)
		c.settle(now, r, ending{TimedOut, r.unanswered(), ErrTimedOut}, nil)
		c.endStream(r.stream)
	}
}
