//bowline:pure

package supervisor

// onStopAsked stops every member in reverse order. With keeps, the members that would
// have continued to run start again when the supervisor begins again.
func (c *core) onStopAsked(keeps bool) {
	if c.state != Stopped || c.keeps && !keeps {
		c.stop(keeps && (c.keeps || c.state == Running))
	}
}

func (c *core) stop(keeps bool) {
	c.state, c.keeps, c.drainDue = Stopping, keeps, 0
	for m := range c.members.inOrder() {
		m.queue(keeps)
	}
	c.rebuildQueue()
	if c.awaited != nil && c.awaited.state == Draining {
		c.halt(c.awaited, false)
	}
}

// onDrainAsked lets every member finish its work, and stops those that have no Drain.
// Independent members begin to drain immediately; otherwise each begins when those after
// it have ended. A supervisor that is stopping, or has stopped, has no work left to
// finish, and is stopped for good.
func (c *core) onDrainAsked(due instant) {
	switch c.state {
	case Running:
	case Draining:
		return
	default:
		c.onStopAsked(false)
		return
	}
	c.state, c.drainDue = Draining, due
	c.expect(due)
	for m := range c.members.backward() {
		if m.queue(false); c.strategy == OneForOne && m.mayDrain() {
			c.drain(m)
		}
	}
	c.rebuildQueue()
}

// onHaltAsked stops one member for good.
func (c *core) onHaltAsked(m *member) {
	switch m.state {
	case Waiting:
		c.retire(m)
	case Stopping:
		m.rerun = false
	default:
		c.halt(m, false)
	}
}

// queue marks a member to be stopped in its turn. With rerun it runs again afterwards,
// if its restart type allows that. A member that is already being stopped runs again
// only if that was intended before.
func (m *member) queue(rerun bool) {
	would := m.restart != Temporary
	if m.state == Stopping {
		would = m.rerun
	}
	m.queued, m.rerun = true, rerun && would
}

// rebuildQueue lists the queued members. The last one started is stopped first.
func (c *core) rebuildQueue() {
	c.stopQueue = c.stopQueue[:0]
	for m := range c.members.inOrder() {
		if m.queued {
			c.stopQueue = append(c.stopQueue, m)
		}
	}
}

// proceed stops the next member of the queue when the one before it has ended
// or is stuck. When the queue is empty, it starts waiting members or concludes
// the stop.
func (c *core) proceed() {
	for c.awaited == nil && len(c.stopQueue) > 0 {
		last := len(c.stopQueue) - 1
		m := c.stopQueue[last]
		c.stopQueue[last], c.stopQueue = nil, c.stopQueue[:last] // the array keeps no member that has terminated
		c.stopMember(m)
	}
	switch {
	case c.awaited != nil || c.state == Stopped:
	case c.state == Running:
		c.advance()
	default:
		c.state, c.drainDue, c.dueAt = Stopped, 0, 0
		c.out = append(c.out, effect{kind: conclude})
	}
}

// stopMember stops one member of the queue, and waits for it if it needs time.
func (c *core) stopMember(m *member) {
	m.queued = false
	switch m.state {
	case Waiting:
		if !m.rerun {
			c.retire(m)
		}
	case Starting, Running:
		if c.state == Draining && m.mayDrain() {
			c.drain(m)
		} else {
			c.halt(m, m.rerun)
		}
	case Draining:
		if c.state != Draining {
			c.halt(m, false)
		}
	}
	if (m.state == Stopping || m.state == Draining) && !m.stuck {
		c.awaited = m
	}
}

// halt stops a member. Its shutdown time begins now.
func (c *core) halt(m *member, rerun bool) {
	m.rerun = rerun
	c.stopWithin(m)
	c.out = append(c.out, effect{kind: halt, child: m.key, handle: m.handle, rerun: rerun})
}

func (c *core) stopWithin(m *member) {
	c.enter(m, Stopping)
	if due := c.now + m.shutdown; due >= c.now { // otherwise the time is unlimited, or the sum overflows
		m.due = due
		c.expect(due)
	}
}

func (c *core) drain(m *member) {
	c.enter(m, Draining)
	c.out = append(c.out, effect{kind: drain, child: m.key, handle: m.handle, due: c.drainDue})
}

// expect ensures that a tick comes at a deadline. If the deadline is no longer needed,
// the tick does nothing.
func (c *core) expect(due instant) {
	if c.dueAt == 0 || due < c.dueAt {
		c.dueAt = due
	}
}

// onTick ends the drain when its time has passed, and finds the members that still run
// after their shutdown time.
func (c *core) onTick() {
	if c.drainDue != 0 && c.drainDue <= c.now {
		c.endDrain()
	}
	if c.dueAt = 0; c.drainDue != 0 {
		c.expect(c.drainDue)
	}
	for m := range c.members.inOrder() {
		switch {
		case m.due == 0:
		case m.due > c.now:
			c.expect(m.due)
		default:
			m.stuck, m.due = true, 0
			if c.emit(stuck, m); c.awaited == m {
				c.awaited = nil
			}
		}
	}
}

// endDrain immediately stops all members that have not finished.
func (c *core) endDrain() {
	c.state, c.drainDue = Stopping, 0
	for m := range c.members.backward() {
		if m.state == Starting || m.state == Running || m.state == Draining {
			c.halt(m, false)
		}
	}
}
