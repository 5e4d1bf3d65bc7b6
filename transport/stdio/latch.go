package stdio

import "sync"

// A latch is raised once; raising it again does nothing.
type latch struct {
	raised chan struct{}
	once   sync.Once
}

func newLatch() *latch { return &latch{raised: make(chan struct{})} }

func (s *latch) raise() { s.once.Do(func() { close(s.raised) }) }

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
