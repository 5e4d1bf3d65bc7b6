//bowline:pure

package supervisor

// onStopAsked stops every member in reverse order. If it keeps them, those
// that would have run on start again when the supervisor does.
func (c *core) onStopAsked(keeps bool) {
	if c.state != Stopped || c.keeps && !keeps {
		c.stop(keeps && (c.keeps || c.state == Running))
	}
}

func (c *core) stop(keeps bool) {
	c.state, c.keeps, c.drainDue = Stopping, keeps, 0
	for m := range c.members.inOrder() {
		m.doom(keeps)
	}
	c.queue()
	if c.awaited != nil && c.awaited.state == Draining {
		c.halt(c.awaited, false)
	}
}

// doom has a member stopped when its turn comes. It is to run again if it would
// have; one that is being stopped already, if that was said.
func (m *member) doom(again bool) {
	would := m.restart != Temporary
	if m.state == Stopping {
		would = m.again
	}
	m.doomed, m.again = true, again && would
}

// queue lines up who is to be stopped: the last that was started goes first.
func (c *core) queue() {
	c.doomed = c.doomed[:0]
	for m := range c.members.inOrder() {
		if m.doomed {
			c.doomed = append(c.doomed, m)
		}
	}
}

// proceed stops the next member whenever the one before it is over or overdue,
// and goes on from there when there is none left.
func (c *core) proceed() {
	for c.awaited == nil && len(c.doomed) > 0 {
		last := len(c.doomed) - 1
		m := c.doomed[last]
		c.doomed = c.doomed[:last]
		c.takeDown(m)
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

// takeDown stops one member. It is waited for if it needs time.
func (c *core) takeDown(m *member) {
	m.doomed = false
	switch m.state {
	case Waiting:
		if !m.again {
			c.retire(m)
		}
	case Starting, Running:
		if c.state == Draining && m.mayDrain() {
			c.drain(m)
		} else {
			c.halt(m, m.again)
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

// halt tells a member to stop, and gives it its time.
func (c *core) halt(m *member, again bool) {
	m.again = again
	c.stopWithin(m)
	c.out = append(c.out, effect{kind: halt, child: m.key, again: again})
}

func (c *core) stopWithin(m *member) {
	c.enter(m, Stopping)
	if due := c.now + m.shutdown; due >= c.now { // else it is for ever, or as good as that
		m.due = due
		c.expect(due)
	}
}

// expect sees that there is a tick at a deadline. One that is not needed any
// more costs an idle tick.
func (c *core) expect(due instant) {
	if c.dueAt == 0 || due < c.dueAt {
		c.dueAt = due
	}
}

// onHaltAsked stops one member for good.
func (c *core) onHaltAsked(m *member) {
	switch m.state {
	case Waiting:
		c.retire(m)
	case Stopping:
		m.again = false
	default:
		c.halt(m, false)
	}
}

// onDrainAsked has every member finish what it has begun, and stops those that
// know of nothing to finish. Members that are independent begin at once; else
// each begins when those after it are over. A supervisor that is stopping, or has
// stopped, has nothing left to finish: it is stopped for good.
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
		if m.doom(false); c.strategy == OneForOne && m.mayDrain() {
			c.drain(m)
		}
	}
	c.queue()
}

func (c *core) drain(m *member) {
	c.enter(m, Draining)
	c.out = append(c.out, effect{kind: drain, child: m.key, due: c.drainDue})
}

// endDrain stops all that have not finished, at once: their time is up.
func (c *core) endDrain() {
	c.state, c.drainDue = Stopping, 0
	for m := range c.members.backward() {
		if m.state == Starting || m.state == Running || m.state == Draining {
			c.halt(m, false)
		}
	}
}

// onTick finds out who has ignored its stop.
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
