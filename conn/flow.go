//bowline:pure

package conn

import "time"

// flow decides when the streams of the link may deliver (ADR-0004).
type flow struct {
	crowded bool          // many notifications wait for the handler
	paused  time.Duration // how long the link was paused for them, without the present pause
	stall   Stall         // why credit is withheld; 0 when it is not
	since   instant       // when that began
	until   instant       // when a pause has to end; 0 unless there is one
}

// A Stall says why a Conn has temporarily stopped reading from its link.
type Stall uint8

const (
	_                 Stall = iota
	RepliesWait             // the peer does not read the answers to its requests
	NotificationsWait       // the handler is behind with notifications, and neither side waits for an answer
	stalls
)

var stallNames = [stalls]string{"", "replies wait", "notifications wait"}

func (s Stall) String() string { return stallNames[s] }

// maxPause bounds how long a link is not read because of notifications. It is
// shorter than the silence after which a peer takes this side for dead.
const maxPause = 5 * time.Second

// mayPause reports whether the link may be paused (for longer).
func (f *flow) mayPause(now instant) bool {
	return f.crowded && f.pausedFor(now) < maxPause
}

// pausedFor is how long the link was paused since notifications became many.
func (f *flow) pausedFor(now instant) time.Duration {
	if f.stall == NotificationsWait {
		return f.paused + now - f.since
	}
	return f.paused
}

// change changes the reason for which credit is withheld, 0 for none.
func (f *flow) change(now instant, why Stall) {
	f.paused = f.pausedFor(now)
	f.stall, f.since, f.until = why, now, 0
	if why == NotificationsWait {
		f.until = now + maxPause - f.paused
	}
}

// setCrowded notes that many notifications wait now, or few.
func (f *flow) setCrowded(crowded bool) { f.crowded, f.paused = crowded, 0 }
