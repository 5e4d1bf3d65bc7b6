package cluster_test

import (
	"testing"
	"time"
)

// Failures count in a row: those from before the server has run for a while do not make its node give it up.
//
// Guarantees: G-0079.10
func TestAServerThatHasRunMayFailAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		from := s.holder()
		for _, lasting := range []time.Duration{time.Second, time.Second, time.Minute, time.Second} {
			advance(lasting)
			s.machine.crash()
			advance(2 * time.Second)
			s.awaitReady("a", "b")
		}
		if s.holder() != from {
			t.Errorf("the server runs on %q after %v, want that node %q keeps it", s.holder(), s.machine.startedOn(), from)
		}
	})
}
