//bowline:pure

package conn

import "time"

// flow decides when the streams of the link may deliver (ADR-0004).
type flow struct {
	crowded bool          // many notifications wait for their handler
	paused  time.Duration // how long their pauses were, but for the present one
	stall   Stall         // why credit is withheld; 0 when it is not
	since   instant       // when that began
	until   instant       // when a pause has to end; 0 unless there is one
}

// A Stall is why a Conn does not read from its link.
type Stall uint8

const (
	_           Stall = iota
	RepliesWait       // the peer does not take its answers, so it may not ask further
	NoticesWait       // the handler is behind with notifications, and nobody waits for an answer
	stalls
)

var stallNames = [stalls]string{"", "replies wait", "notifications wait"}

func (s Stall) String() string { return stallNames[s] }

// maxPause is how long a crowd may keep a link from being read: less than it
// takes until a peer that watches, or writes, thinks this side dead.
const maxPause = 5 * time.Second

// grantCredit ends a step: what its frames have used is given back, unless
// there is a reason to withhold it.
func (c *core) grantCredit(now instant) {
	if len(c.streams.owed) == 0 && c.flow.stall == 0 {
		return
	}
	if c.stallFor(now, c.stallReason(now)); c.flow.stall != 0 {
		return
	}
	for _, s := range c.streams.owed {
		if c.attached() {
			c.emit(effect{kind: grant, epoch: c.epoch, stream: s.number, frames: s.withheld})
		}
		s.withheld = 0
	}
	clear(c.streams.owed)
	c.streams.owed = c.streams.owed[:0]
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
		return NoticesWait
	default:
		return 0
	}
}

// mayPause reports whether the crowd has some of its pause left.
func (f *flow) mayPause(now instant) bool {
	return f.crowded && f.pausedFor(now) < maxPause
}

// pausedFor is how long the crowd has kept the link from being read.
func (f *flow) pausedFor(now instant) time.Duration {
	if f.stall == NoticesWait {
		return f.paused + now - f.since
	}
	return f.paused
}

// stallFor notes what credit is withheld for from here on.
func (c *core) stallFor(now instant, why Stall) {
	f := &c.flow
	if why == f.stall {
		return
	}
	if f.stall != 0 {
		c.emit(effect{kind: stallEnded, epoch: c.epoch, stall: f.stall, at: now - f.since})
		c.liveness.hear(now) // until now nothing could be
	}
	f.paused = f.pausedFor(now)
	f.stall, f.since, f.until = why, now, 0
	if why == NoticesWait {
		f.until = now + maxPause - f.paused
	}
	if why != 0 {
		c.emit(effect{kind: stallBegun, epoch: c.epoch, stall: why})
	}
}

// onCrowd hears that the notifications that wait have become many, or few.
func (c *core) onCrowd(crowded bool) { c.flow.crowded, c.flow.paused = crowded, 0 }
