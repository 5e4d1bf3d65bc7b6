// Package credit counts the frames that a stream may still deliver.
package credit

import "sync"

// A Credit is granted by the receiver of a stream and taken by its reader. One
// goroutine at a time may take. Use New.
type Credit struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // holds one: some was granted
}

// New returns a Credit of nothing.
func New() *Credit { return &Credit{more: make(chan struct{}, 1)} }

// Grant adds frames.
func (c *Credit) Grant(frames int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += frames
	select {
	case c.more <- struct{}{}:
	default: // a wake-up is due already
	}
}

// Take waits for one frame's credit and takes it. It returns false when one of the
// channels is closed first.
func (c *Credit) Take(stop, leave <-chan struct{}) bool {
	for !c.taken() {
		select {
		case <-c.more:
		case <-stop:
			return false
		case <-leave:
			return false
		}
	}
	return true
}

func (c *Credit) taken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n <= 0 {
		return false
	}
	c.n--
	return true
}
