// Package latch has what the links wait for: a thing that happens once.
package latch

import (
	"sync"
	"time"
)

// A Latch is raised once; raising it again does nothing.
type Latch struct {
	Raised chan struct{} // closed by Raise
	once   sync.Once
}

// New returns a latch that is not raised.
func New() *Latch { return &Latch{Raised: make(chan struct{})} }

// Raise raises the latch.
func (l *Latch) Raise() { l.once.Do(func() { close(l.Raised) }) }

// IsRaised reports whether a channel, a latch's or another, was closed.
func IsRaised(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Within waits for a channel to be closed, no longer than patience, and reports
// whether it was.
func Within(done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
