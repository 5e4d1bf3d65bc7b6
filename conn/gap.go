package conn

import (
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A gap is the time since an incarnation that was ready was lost.
type gap struct {
	lost  uint64 // that incarnation
	why   Reason
	since time.Time
	calls int // that ended with it
}

// beginGap notes that the Conn was ready, and is not any more.
func (l *loop) beginGap(lost uint64, why Reason, now time.Time) {
	l.conn.gap = &gap{lost: lost, why: why, since: now}
}

// settled counts a call that ends with the incarnation whose loss is the gap's.
// Notifications have no id, and are not counted.
func (l *loop) settled(id int64, cause Cause) {
	if gap := l.conn.gap; gap != nil && id != 0 && cause == LinkLost && gap.lost == l.core.epoch {
		gap.calls++
	}
}

// endGap tells that the Conn is ready again.
func (l *loop) endGap(epoch uint64, now time.Time) {
	c := l.conn
	told := telemetry.Gap{
		Conn: c.options.Name, Lost: c.gap.lost, Epoch: epoch, Kind: string(c.gap.why.Kind), Reason: c.gap.why,
		Calls: c.gap.calls, Duration: now.Sub(c.gap.since),
	}
	c.gap = nil
	tell(l, c.options.Hooks.Gap, told)
}
