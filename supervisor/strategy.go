//bowline:pure

package supervisor

import "fmt"

// A Strategy says who else is restarted when a child is.
type Strategy uint8

const (
	OneForOne  Strategy = iota // nobody: children are independent
	OneForAll                  // all others: children need each other
	RestForOne                 // those that were started after it: children need those before them
)

func (s Strategy) String() string {
	switch s {
	case OneForAll:
		return "one_for_all"
	case RestForOne:
		return "rest_for_one"
	case OneForOne:
		return "one_for_one"
	default:
		return fmt.Sprintf("Strategy(%d)", uint8(s))
	}
}

// affords spends one restart, and reports whether there was one left.
func (c *core) affords() (within bool) {
	c.restarts, within = spend(c.restarts, c.now, c.intensity, c.period)
	return within
}

// restart has a member run again, and with it whom the strategy says: they are
// stopped in reverse order, and then all are started in order.
func (c *core) restart(m *member) {
	if c.strategy == OneForOne {
		c.launch(m)
		return
	}
	c.enter(m, Waiting)
	from := c.members.first
	if c.strategy == RestForOne {
		from = m.next
	}
	for ; from != nil; from = from.next {
		if from != m {
			from.doom(true)
		}
	}
	c.queue()
}

// giveUp is what follows one restart too many.
func (c *core) giveUp(m *member) {
	c.emit(giveUp, m)
	c.stop(c.nested)
	c.hold(m)
}

// onBegun starts the supervisor anew, with the members it has kept. What it
// has spent on restarts before is forgotten.
func (c *core) onBegun() {
	c.state, c.keeps, c.restarts, c.ordered = Running, false, nil, true
}

// onRestartAsked restarts one member, whatever the strategy. One that waits or
// is being stopped is left to whoever has seen to that.
func (c *core) onRestartAsked(m *member) {
	if c.state == Running && (m.state == Starting || m.state == Running) {
		c.halt(m, true)
	}
}
