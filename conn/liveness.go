//bowline:pure

package conn

import "time"

// liveness tells a silent peer from one that is gone: after a while of silence it
// is probed, and when it has missed two probes the link is lost (ADR-0025).
type liveness struct {
	every   time.Duration // how long the peer may be silent; 0: forever
	idle    time.Duration // the same, while nothing waits for the peer
	heardAt instant       // when the peer was last heard
	dueAt   instant       // when to look again
	probe   int64         // the id of the last probe; 0: none yet
	asked   bool          // the peer has not been heard since the last probe
	missed  int           // probes in a row after which the peer was not heard
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
