package parts

import "sync"

// A Credit is granted by the receiver of a stream and taken by its reader. One goroutine
// at a time may wait or take. The zero value is ready to use.
type Credit struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // gets a token when credit is granted; nil until somebody waits
}

// Grant adds frames.
func (c *Credit) Grant(frames int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += frames
	if c.more == nil {
		return
	}
	select {
	case c.more <- struct{}{}:
	default: // the channel has a token already
	}
}

// Left returns for how many frames there is credit.
func (c *Credit) Left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.n, 0)
}

// TryTake takes one frame's credit, if there is some now.
func (c *Credit) TryTake() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n <= 0 {
		return false
	}
	c.n--
	return true
}

// Take waits for one frame's credit and takes it. It returns false if there is none when
// one of the channels is closed.
func (c *Credit) Take(stop, leave <-chan struct{}) bool {
	for !c.TryTake() {
		if !c.Await(stop, leave) {
			return false
		}
	}
	return true
}

// Await waits for credit and takes none. It returns false if there is none when one of the
// channels is closed.
func (c *Credit) Await(stop, leave <-chan struct{}) bool {
	for more := c.untilMore(); more != nil; more = c.untilMore() {
		select {
		case <-more:
		case <-stop:
			return false
		case <-leave:
			return false
		}
	}
	return true
}

// untilMore returns nil if there is credit, and otherwise a channel that gets a value when
// there is some.
func (c *Credit) untilMore() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return nil
	}
	if c.more == nil {
		c.more = make(chan struct{}, 1)
	}
	return c.more
}
