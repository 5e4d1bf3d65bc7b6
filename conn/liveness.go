//bowline:pure

package conn

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// liveness detects a peer that is gone. It probes a silent peer, and when the
// peer has missed two probes, the link is lost (ADR-0025).
type liveness struct {
	every   time.Duration // how long the peer may be silent; 0: no limit
	idle    time.Duration // the same while nothing waits for the peer
	heardAt instant       // when the peer was last heard
	dueAt   instant       // when to check again
	probe   int64         // the id of the last probe; 0: none yet
	asked   bool          // whether the peer has been silent since the last probe
	missed  int           // how many probes in a row the peer did not react to
}

const (
	defaultLiveness = 5 * time.Second
	missesToLose    = 2

	// idleLiveness is how long the peer of a link whose probes are requests of their
	// own may be silent while nothing waits for it.
	idleLiveness = time.Minute
)

// hear notes that the peer was heard.
func (l *liveness) hear(now instant) { l.heardAt, l.asked, l.missed = now, false, 0 }

// begin begins to watch a peer.
func (l *liveness) begin(now instant, every, idle time.Duration) {
	*l = liveness{every: every, idle: idle, heardAt: now}
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

// watch decides what to do at dueAt, and reports whether the peer has missed another probe.
// If nothing waits for the peer, and it was heard after the last probe, the longer time
// applies.
func (l *liveness) watch(now instant, waits bool) (next reaction, missed bool) {
	silence := l.every
	if !waits && !l.asked {
		silence = l.idle
	}
	if now-l.heardAt < silence {
		l.dueAt = l.heardAt + silence
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

// livenessEvery is how long the peer may be silent; 0 means forever.
func (c *core) livenessEvery() time.Duration {
	every := c.options.Liveness
	if every == 0 && c.reportsBytes {
		every = defaultLiveness
	}
	if c.role == acceptor {
		return 0
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
	if c.flow.stall != 0 {
		l.hear(now)
	} else if ev.heardAt > l.heardAt {
		l.hear(ev.heardAt)
	}
	if !passed(now, l.dueAt) || ev.id == 0 || c.state() != Ready {
		return
	}
	next, missedOne := l.watch(now, c.awaitsPeer())
	if missedOne {
		c.emit(effect{kind: missed, epoch: c.epoch, frames: l.missed})
	}
	switch next {
	case giveUp:
		c.lose(now, Reason{LivenessLost, fmt.Errorf("no sign of life for %v", now-l.heardAt)}, ev.random, 0, nil)
	case sendProbe:
		c.probePeer(now, ev.id)
	}
}

// probePeer sends a probe, which replaces the previous one.
func (c *core) probePeer(now instant, id int64) {
	c.forgetProbe(now)
	probe := c.dialect.Probe()
	if probe.Method == "" { // the dialect has no probe
		c.liveness = liveness{}
		return
	}
	c.liveness.probe, c.liveness.asked = id, true
	c.track(request{id: id, probe: true})
	c.send(probe.request(id, new(transport.Route)))
}

func (c *core) forgetProbe(now instant) {
	if r, ok := c.pending.take(c.liveness.probe); ok {
		c.outbound.drop(r.id)
		c.settle(now, r, ending{TimedOut, r.unanswered(), ErrTimedOut}, nil)
		c.endStream(r.stream)
	}
}
