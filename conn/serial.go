package conn

import (
	"sync"
	"time"
)

// A serial runs functions one at a time, in order, on a goroutine that exists
// only while there is something to run.
type serial struct {
	bound int // functions that may wait

	mu      sync.Mutex
	waiting []func()
	idle    chan struct{} // nil while nothing runs; closed when the goroutine ends
}

func newSerial(bound int) *serial { return &serial{bound: bound} }

// submit adds a function, or reports false when too many wait.
func (s *serial) submit(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= s.bound {
		return false
	}
	s.waiting = append(s.waiting, f)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.run(s.idle)
	}
	return true
}

func (s *serial) run(idle chan struct{}) {
	defer close(idle)
	for {
		f := s.next()
		if f == nil {
			return
		}
		f()
	}
}

// next takes the oldest that waits, or ends the goroutine with nil.
func (s *serial) next() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.waiting, s.idle = nil, nil
		return nil
	}
	f := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	return f
}

// settle waits until nothing runs, for at most the grace, and reports whether
// that came about. If not, what still waits is dropped.
func (s *serial) settle(grace time.Duration) bool {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return true
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		s.mu.Lock()
		s.waiting = nil
		s.mu.Unlock()
		return false
	}
}
