// Package courier carries what waits in a queue to code that may be slow, on a
// goroutine that exists only while something waits.
package courier

import (
	"sync"
	"time"
)

// A Courier is a goroutine that exists only while its queue holds something.
// The queue embeds it, and is guarded by its lock. The zero value is ready.
type Courier struct {
	Mu   sync.Mutex
	gone chan struct{} // closed when the goroutine ends; nil while there is none
}

// Start sees that there is a goroutine, which calls next until that finds
// nothing. The lock is held.
func (c *Courier) Start(next func() (more bool)) {
	if c.gone != nil {
		return
	}
	c.gone = make(chan struct{})
	go carry(c.gone, next)
}

// carry calls next until that finds nothing. Should what next calls end the
// goroutine (runtime.Goexit), another goes on.
func carry(gone chan struct{}, next func() (more bool)) {
	over := false
	defer func() {
		if over {
			close(gone)
			return
		}
		go carry(gone, next)
	}()
	for next() {
	}
	over = true
}

// End says that the goroutine has found nothing, and ends. The lock is held.
func (c *Courier) End() { c.gone = nil }

// Await waits until there is no goroutine, for at most the grace, and reports
// whether that came about.
func (c *Courier) Await(grace time.Duration) bool {
	c.Mu.Lock()
	gone := c.gone
	c.Mu.Unlock()
	if gone == nil {
		return true
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}
