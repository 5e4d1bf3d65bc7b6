package conn

import (
	"time"

	"github.com/bowline-mcp/bowline/internal/ondemand"
)

// A serial runs functions one at a time, in order, off the loop.
type serial struct {
	ondemand.Worker
	bound   int // functions that may wait
	waiting []func()
}

func newSerial(bound int) *serial { return &serial{bound: bound} }

// submit adds a function, or reports false when too many wait.
func (s *serial) submit(run func()) bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.waiting) >= s.bound {
		return false
	}
	s.waiting = append(s.waiting, run)
	s.Start(s.runNext)
	return true
}

// runNext runs the oldest that waits.
func (s *serial) runNext() (more bool) {
	run := s.next()
	if run != nil {
		run()
	}
	return run != nil
}

func (s *serial) next() func() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.waiting) == 0 {
		s.waiting = nil
		s.End()
		return nil
	}
	next := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	return next
}

// settle waits until nothing runs, for at most the grace, and reports whether
// that came about. If not, what still waits is dropped.
func (s *serial) settle(grace time.Duration) bool {
	settled := s.Await(grace)
	if !settled {
		s.Mu.Lock()
		s.waiting = nil
		s.Mu.Unlock()
	}
	return settled
}
