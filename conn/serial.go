package conn

import "time"

// A serial runs functions one at a time, in order, off the loop.
type serial struct {
	courier
	bound   int // functions that may wait
	waiting []func()
}

func newSerial(bound int) *serial { return &serial{bound: bound} }

// submit adds a function, or reports false when too many wait.
func (s *serial) submit(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= s.bound {
		return false
	}
	s.waiting = append(s.waiting, run)
	s.start(s.runNext)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.waiting = nil
		s.end()
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
	settled := s.await(grace)
	if !settled {
		s.mu.Lock()
		s.waiting = nil
		s.mu.Unlock()
	}
	return settled
}
