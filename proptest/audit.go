package proptest

import (
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// audit lists what is not true of a Conn whose calls have ended.
func (s *soaked) audit() []string {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	repeated := 0
	for params, a := range l.entries {
		repeated += max(a.handed-a.accepted, 0)
		if wrong := a.audit(s.o.allows(fault.Duplicate)); wrong != "" {
			l.blame("call %s, %s and %s, %s: %+v", params, a.cause, a.delivery, wrong, *a)
		}
	}
	if most := s.repeats(); repeated > most {
		l.blame("%d requests were repeated, and %d by faults", repeated, most)
	}
	final := s.conn.Stats()
	l.auditEndings(final, s.o.Conn.Handshake == nil)
	l.auditFrames(s.atRest, !s.o.RealTime)
	nothingKept(final, l.blame)
	return l.wrong
}

// audit says what is not true of one call.
func (a *account) audit(mayRepeat bool) string {
	switch {
	case a.ended != 1:
		return fmt.Sprintf("ended %d times", a.ended)
	case a.delivery == conn.NotSent && a.executed > 0:
		return "was executed"
	case a.cause == conn.Answered && a.executed == 0:
		return "was not executed"
	case a.accepted > 1:
		return "was sent again by the Conn"
	case a.executed > a.handed:
		return "was executed more often than it was handed on"
	case a.handed > a.accepted && !mayRepeat:
		return "was handed on more often than it was sent"
	default:
		return ""
	}
}

// repeats is how many frames faults have sent twice.
func (s *soaked) repeats() (n int) {
	for _, e := range s.faults.Log() {
		if e.Kind == fault.Duplicate && e.Direction == fault.Outbound {
			n++
		}
	}
	return n
}

// auditEndings holds the Conn's books against what its callers were told. In
// books that are not exact there are a handshake's calls as well.
func (l *ledger) auditEndings(stats conn.Stats, exact bool) {
	told := l.endings()
	for _, cause := range conn.Causes() {
		for _, delivery := range conn.Deliveries() {
			booked, seen := stats.Settled[cause][delivery], told[cause][delivery]
			if booked < seen || exact && booked > seen {
				l.blame("%d calls ended %s and %s, and %d in the books", seen, cause, delivery, booked)
			}
		}
	}
}

// endings counts what the callers were told.
func (l *ledger) endings() endings {
	told := newEndings()
	for _, a := range l.entries {
		if a.ended > 0 && a.cause != 0 {
			told[a.cause][a.delivery]++
		}
	}
	return told
}

// auditFrames wants everything that was delivered to be in the books, where it
// has come to rest.
func (l *ledger) auditFrames(stats conn.Stats, rested bool) {
	answers := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	for _, c := range []struct {
		what       string
		seen, book uint64
	}{
		{"answers", uint64(l.replies), answers},
		{"malformed frames", uint64(l.malformed), stats.Malformed},
		{"notifications", uint64(l.told), uint64(l.heard) + stats.Shed},
	} {
		if c.book > c.seen || rested && c.book < c.seen {
			l.blame("%d %s were delivered, and %d are in the books", c.seen, c.what, c.book)
		}
	}
}
