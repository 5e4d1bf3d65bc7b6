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

// A Stall is the reason why a Conn does not read from its link for a while.
type Stall uint8

const (
	_                 Stall = iota
	RepliesWait             // the peer does not read the answers to its requests
	NotificationsWait       // the handler is behind with notifications, and neither side waits for an answer
	stalls
)

var stallNames = [stalls]string{"", "replies wait", "notifications wait"}

func (s Stall) String() string { return stallNames[s] }

// maxPause is how long a crowd may keep a link from being read: less than it
// takes until a peer that watches, or writes, thinks this side dead.
const maxPause = 5 * time.Second

// mayPause reports whether the crowd has some of its pause left.
func (f *flow) mayPause(now instant) bool {
	return f.crowded && f.pausedFor(now) < maxPause
}

// pausedFor is how long the crowd has kept the link from being read.
func (f *flow) pausedFor(now instant) time.Duration {
	if f.stall == NotificationsWait {
		return f.paused + now - f.since
	}
	return f.paused
}

// change notes what credit is withheld for from here on, 0 for nothing.
func (f *flow) change(now instant, why Stall) {
	f.paused = f.pausedFor(now)
	f.stall, f.since, f.until = why, now, 0
	if why == NotificationsWait {
		f.until = now + maxPause - f.paused
	}
}

// crowd notes that the notifications that wait have become many, or few.
func (f *flow) crowd(crowded bool) { f.crowded, f.paused = crowded, 0 }
