package stdio

import "sync"

// A credit counts the frames that may still be delivered.
type credit struct {
	mu     sync.Mutex
	more   sync.Cond
	n      int
	closed bool
}

func newCredit() *credit {
	c := &credit{}
	c.more.L = &c.mu
	return c
}

func (c *credit) grant(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	c.more.Signal()
}

// take waits for one credit, and reports false when there will be none.
func (c *credit) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n <= 0 && !c.closed {
		c.more.Wait()
	}
	if c.n <= 0 {
		return false
	}
	c.n--
	return true
}

// close ends the waiting for credit; what there is can still be taken.
func (c *credit) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.more.Signal()
}
