// Package latch provides signals that happen once.
package latch

import (
	"sync"
	"time"
)

// A Latch is raised once. Raising it again does nothing.
type Latch struct {
	Raised chan struct{} // Raise closes it
	once   sync.Once
}

// New returns a latch that is not raised.
func New() *Latch { return &Latch{Raised: make(chan struct{})} }

// Raise raises the latch.
func (l *Latch) Raise() { l.once.Do(func() { close(l.Raised) }) }

// Within waits until a channel is closed. It returns false when that takes longer
// than the timeout.
func Within(done <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
