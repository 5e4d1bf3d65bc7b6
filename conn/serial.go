package conn

import (
	"sync"
	"time"
)

// A serial runs functions one at a time, in order, on a goroutine that exists
// only while there is something to run.
type serial struct {
	bound     int // functions that may wait
	boundSize int // of all that wait together; one always fits

	mu      sync.Mutex
	waiting []errand
	size    int
	idle    chan struct{} // nil while nothing runs; closed when the goroutine ends
}

// An errand is a function that waits, and the bytes it holds.
type errand struct {
	run  func()
	size int
}

func newSerial(bound, boundSize int) *serial { return &serial{bound: bound, boundSize: boundSize} }

// submit adds a function that holds size bytes, or reports false when too many
// or too much wait.
func (s *serial) submit(size int, run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= s.bound || s.size > 0 && s.size+size > s.boundSize {
		return false
	}
	s.waiting = append(s.waiting, errand{run, size})
	s.size += size
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
	next := s.waiting[0]
	s.waiting[0] = errand{}
	s.waiting = s.waiting[1:]
	s.size -= next.size
	return next.run
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
