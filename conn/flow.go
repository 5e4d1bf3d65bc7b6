//bowline:pure

package conn

import "time"

// flow decides when the streams of the link may deliver (ADR-0004).
type flow struct {
	crowded   bool    // many notifications wait for their handler
	impatient bool    // it has not got on for too long: they are shed until the crowd is gone
	stall     Stall   // why credit is withheld; 0 when it is not
	since     instant // when that began
	lookAt    instant // when to look whether the handler has got on; 0 unless paused
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

// pausePatience is how long a pause goes on without a notification handled.
const pausePatience = 10 * time.Second

// grantCredit ends a step: what its frames have used is given back, unless
// there is a reason to withhold it.
func (c *core) grantCredit(now instant) {
	if len(c.streams.owed) == 0 && c.flow.stall == 0 {
		return
	}
	if c.stallFor(now, c.stallReason()); c.flow.stall != 0 {
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
func (c *core) stallReason() Stall {
	switch {
	case len(c.streams.owed) == 0:
		return 0
	case c.outbound.congested():
		return RepliesWait
	case c.flow.crowded && !c.flow.impatient && !c.draining && c.pending.calls == 0 && c.incoming.len() == len(c.incoming.streaming):
		return NoticesWait
	default:
		return 0
	}
}

// stallFor notes what credit is withheld for from here on.
func (c *core) stallFor(now instant, why Stall) {
	if why == c.flow.stall {
		return
	}
	if c.flow.stall != 0 {
		c.emit(effect{kind: stallEnded, epoch: c.epoch, stall: c.flow.stall, at: now - c.flow.since})
	}
	c.flow.stall, c.flow.since, c.flow.lookAt = why, now, 0
	if why == NoticesWait {
		c.flow.lookAt = now + pausePatience
	}
	if why != 0 {
		c.emit(effect{kind: stallBegun, epoch: c.epoch, stall: why})
	}
}

// onCrowd hears that the notifications that wait have become many, or few.
func (c *core) onCrowd(crowded bool) {
	c.flow.crowded, c.flow.impatient = crowded, false
}

// reconsiderPause goes on with a pause for as long as the handler gets on.
func (c *core) reconsiderPause(now instant, ev *event) {
	if !passed(now, c.flow.lookAt) {
		return
	}
	c.flow.lookAt = now + pausePatience
	if !ev.handling {
		c.flow.lookAt, c.flow.impatient = 0, true
	}
}
