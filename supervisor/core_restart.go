//bowline:pure

package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// A Restart says whether a child runs again after its Run has returned.
type Restart uint8

const (
	Permanent Restart = iota // always
	Transient                // after an error or a panic
	Temporary                // never
)

// MarshalText returns the text of String, so JSON contains a word instead of a number.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Restart) String() string {
	switch r {
	case Permanent:
		return "permanent"
	case Transient:
		return "transient"
	case Temporary:
		return "temporary"
	default:
		return fmt.Sprintf("Restart(%d)", uint8(r))
	}
}

// follows reports whether another Run follows after a Run has ended. Failed says whether
// it failed.
func (r Restart) follows(failed bool) bool {
	return r == Permanent || r == Transient && failed
}

// A Strategy says which other children a supervisor restarts when it restarts
// one.
type Strategy uint8

const (
	OneForOne  Strategy = iota // none: the children are independent
	OneForAll                  // all: the children need each other
	RestForOne                 // those started after it: each child needs those before it
)

// MarshalText returns the text of String, so JSON contains a word instead of a number.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Strategy) String() string {
	switch s {
	case OneForOne:
		return "one_for_one"
	case OneForAll:
		return "one_for_all"
	case RestForOne:
		return "rest_for_one"
	default:
		return fmt.Sprintf("Strategy(%d)", uint8(s))
	}
}

// restart restarts a member and those that the strategy names: it stops them
// in reverse order, and then starts all of them in order.
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
			from.queue(true)
		}
	}
	c.rebuildQueue()
}

// giveUp stops the supervisor after one restart too many.
func (c *core) giveUp(m *member) {
	c.emit(giveUp, m)
	c.stop(c.nested)
	c.hold(m)
}

// onBegun starts the supervisor again, with the members that it has kept and an empty
// count of restarts.
func (c *core) onBegun() {
	c.state, c.keeps, c.restarts, c.beginning = Running, false, nil, true
}

// onRestartAsked restarts only this member. It does nothing if the member waits or is
// being stopped.
func (c *core) onRestartAsked(m *member) {
	if c.state == Running && (m.state == Starting || m.state == Running) {
		c.halt(m, true)
	}
}

// countRestart counts one restart, and reports whether it was allowed.
func (c *core) countRestart() (allowed bool) {
	c.restarts, allowed = addRestart(c.restarts, c.now, c.intensity, c.period)
	return allowed
}

// recentRestarts returns how many restarts happened within the period before now.
func (c *core) recentRestarts(now instant) (count int) {
	for _, restart := range c.restarts {
		if now-restart <= c.period {
			count++
		}
	}
	return count
}

// addRestart adds a restart at now to those before it, oldest first, drops those
// older than the period, and reports whether at most intensity are left. As in
// OTP, a restart exactly one period old counts. It reuses the slice it is given.
func addRestart(restarts []instant, now instant, intensity int, period time.Duration) (recent []instant, allowed bool) {
	expired := 0
	for expired < len(restarts) && now-restarts[expired] > period {
		expired++
	}
	recent = append(slices.Delete(restarts, 0, expired), now)
	return recent, len(recent) <= intensity
}
