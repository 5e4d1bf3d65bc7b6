//bowline:pure

package conn

import (
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// lose ends the incarnation: every request is settled in this step, whatever
// it serves is cancelled, the link is closed, and the next attempt is set, not
// before the peer has asked for it.
func (c *core) lose(now instant, why Reason, random float64, asked time.Duration, unsent []transport.Tag) {
	if state := c.state(); state == Backoff || state == Closing {
		return // this incarnation is over already
	}
	if c.role == acceptor || c.draining {
		c.close(now, why, unsent, c.options.StopGrace)
		return
	}
	wait := max(c.nextWait(now, &why, random), asked)
	if c.final(why) {
		c.close(now, why, unsent, c.options.StopGrace)
		return
	}
	c.initDue, c.retryAt = 0, now+wait
	c.admit(lost, why)
	c.endIncarnation(now, LinkLost, why, unsent, c.options.StopGrace)
}

// nextWait advances the schedule, and marks the reason of a third unproven
// loss in a row.
func (c *core) nextWait(now instant, why *Reason, random float64) time.Duration {
	if c.state() == Ready && now-c.readyAt >= c.options.ProvenAfter {
		c.unproven = 0
		c.schedule = nil
	} else {
		c.unproven++
	}
	if !why.weather() {
		return c.options.BackoffMax
	}
	if c.unproven >= crashLoop {
		*why = Reason{CrashLooping, *why}
	}
	if c.schedule == nil {
		c.schedule = newSchedule(c.options)
	}
	return c.schedule.next(random)
}

// crashLoop is how many unproven losses in a row make a crash loop.
const crashLoop = 3

func (c *core) onWoken(now instant) {
	if c.state() == Backoff {
		c.retry(now, Woken)
	}
}

// retry begins the next attempt, as soon as the old link is gone: there is
// never more than one.
func (c *core) retry(now instant, why ReasonKind) {
	if c.linked {
		c.retryAt, c.retryWhy = 0, why
		return
	}
	if c.admit(retryDue, Reason{Kind: why}) {
		c.begin(now)
	}
}
