package conn

import (
	"sync"
	"time"
)

// A courier is a goroutine that exists only while its queue holds something.
// The queue embeds it, and is guarded by its lock.
type courier struct {
	mu   sync.Mutex
	gone chan struct{} // closed when the goroutine ends; nil while there is none
}

// start sees that there is a goroutine, which calls next until that finds
// nothing. The lock is held.
func (c *courier) start(next func() (more bool)) {
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

// end says that the goroutine has found nothing, and ends. The lock is held.
func (c *courier) end() { c.gone = nil }

// await waits until there is no goroutine, for at most the grace, and reports
// whether that came about.
func (c *courier) await(grace time.Duration) bool {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
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
