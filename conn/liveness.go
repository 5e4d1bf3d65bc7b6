//bowline:pure

package conn

import "time"

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

// begin watches a peer that has just become ready, for a silence that lasts so
// long.
func (l *liveness) begin(now instant, every time.Duration) {
	*l = liveness{every: every, heardAt: now}
	if every > 0 {
		l.dueAt = now + every
	}
}

// A sign is what to do about a peer that is silent.
type sign uint8

const (
	noSign sign = iota
	askForOne
	giveUp
)

// watch looks whether the peer was silent for too long, and reports whether it
// has missed another probe.
func (l *liveness) watch(now instant) (next sign, missed bool) {
	if now-l.heardAt < l.every {
		l.dueAt = l.heardAt + l.every
		return noSign, false
	}
	if l.asked {
		l.missed++
	}
	if l.missed >= missesToLose {
		return giveUp, l.asked
	}
	// A tick may come a little late, which does not add up, or much, which is no
	// fault of the peer's.
	l.dueAt = max(l.dueAt+l.every, now+l.every*3/4)
	return askForOne, l.asked
}
