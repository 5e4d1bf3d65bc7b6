//bowline:pure

package conn

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// liveness tells a peer that is silent from one that is gone: after a while of
// silence it is asked for a sign of life, and lost when it gives none, twice
// (ADR-0025).
type liveness struct {
	every   time.Duration // how long a silence may be; 0 when it does not matter
	heardAt instant       // of the last sign of life
	dueAt   instant       // when to look again
	probe   int64         // the last one; 0 before it
	asked   bool          // nothing was heard since
	missed  int           // probes in a row that nothing was heard after
}

const (
	defaultLiveness = 5 * time.Second
	missesToLose    = 2
)

// hear notes a sign of life.
func (l *liveness) hear(now instant) { l.heardAt, l.asked, l.missed = now, false, 0 }

// beginLiveness begins to watch a peer that has just become ready.
func (c *core) beginLiveness(now instant) {
	every := c.options.Liveness
	if every == 0 && c.counted {
		every = defaultLiveness
	}
	if c.role == acceptor || every < 0 {
		every = 0
	}
	c.liveness = liveness{every: every, heardAt: now}
	if every > 0 {
		c.liveness.dueAt = now + every
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
	switch {
	case now-l.heardAt < l.every:
		l.dueAt = l.heardAt + l.every
		return
	case l.asked:
		l.missed++
		c.emit(effect{kind: missed, epoch: c.epoch, frames: l.missed})
	}
	if l.missed >= missesToLose {
		c.lose(now, Reason{LivenessLost, fmt.Errorf("no sign of life for %v", now-l.heardAt)}, ev.random, 0, nil)
		return
	}
	// A tick may come a little late, which does not add up, or much, which is no
	// fault of the peer's.
	l.dueAt = max(l.dueAt+l.every, now+l.every*3/4)
	c.probePeer(now, ev.id)
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

// unended counts the requests that somebody waits for.
func (c *core) unended() int {
	if _, probing := c.pending.byID[c.liveness.probe]; probing {
		return c.pending.len() - 1
	}
	return c.pending.len()
}

func (c *core) forgetProbe(now instant) {
	if r, ok := c.pending.take(c.liveness.probe); ok {
		c.outbound.drop(r.id)
		c.settle(now, r, ending{TimedOut, r.unanswered(), ErrTimedOut}, nil)
		c.endStream(r.stream)
	}
}

// endLiveness watches the peer no longer.
func (c *core) endLiveness(now instant) {
	c.forgetProbe(now)
	c.liveness = liveness{}
}
