package wait

// Changes lets goroutines wait for the next change of something. It makes its channel only when a caller waits. The zero value is ready. Whoever
// has it guards it with the mutex of what changes, so that a caller who looks and then waits misses nothing.
type Changes struct{ next chan struct{} }

// Next returns a channel that is closed at the next change.
func (c *Changes) Next() <-chan struct{} {
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Announce wakes all who wait.
func (c *Changes) Announce() {
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
