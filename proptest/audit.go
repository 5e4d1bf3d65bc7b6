package proptest

import (
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// audit lists what is not true of a Conn whose calls have ended.
func (s *soaked) audit() []string {
	r, final := s.record, s.conn.Stats()
	balance := r.Balance(final)
	r.mu.Lock()
	defer r.mu.Unlock()
	if balance != nil {
		r.blame("%v", balance)
	}
	repeated := 0
	for params, a := range r.entries {
		repeated += max(a.handed-a.accepted, 0)
		if wrong := a.audit(s.o.allows(fault.Duplicate)); wrong != "" {
			r.blame("call %s: %s: %+v", params, wrong, *a)
		}
	}
	if most := s.repeats(); repeated > most {
		r.blame("%d requests were repeated, and %d by faults", repeated, most)
	}
	r.auditFrames(s.atRest, !s.o.RealTime)
	nothingKept(final, r.blame)
	return r.wrong
}

// audit says what is not true of one call, or returns "".
func (a *account) audit(mayRepeat bool) string {
	switch wrong := a.Contradiction(a.handed); {
	case wrong != "":
		return wrong
	case a.accepted > 1:
		return fmt.Sprintf("the Conn sent it %d times", a.accepted)
	case a.handed > a.accepted && !mayRepeat:
		return "it was handed on more often than it was sent"
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

// auditFrames checks that the Conn counts everything that was delivered, once it
// has come to rest.
func (l *record) auditFrames(stats conn.Stats, rested bool) {
	answers := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	for _, c := range []struct {
		what            string
		seen, inTheBook uint64
	}{
		{"answers", uint64(l.replies), answers},
		{"malformed frames", uint64(l.malformed), stats.Malformed},
		{"notifications", uint64(l.notified), uint64(l.handled) + stats.Shed},
	} {
		if c.inTheBook > c.seen || rested && c.inTheBook < c.seen {
			l.blame("%d %s were delivered, and %d are counted", c.seen, c.what, c.inTheBook)
		}
	}
}
