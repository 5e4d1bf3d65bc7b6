//bowline:pure

package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// A Restart says which ends of a child's Run are followed by another Run.
type Restart uint8

const (
	Permanent Restart = iota // always
	Transient                // after an error or a panic
	Temporary                // never
)

func (r Restart) String() string {
	switch r {
	case Transient:
		return "transient"
	case Temporary:
		return "temporary"
	case Permanent:
		return "permanent"
	default:
		return fmt.Sprintf("Restart(%d)", uint8(r))
	}
}

// again reports whether a child runs again after a Run that has failed or not.
func (r Restart) again(failed bool) bool {
	return r == Permanent || r == Transient && failed
}

// recent is how many restarts are within the period.
func (c *core) recent(now instant) (count int) {
	for _, restart := range c.restarts {
		if now-restart <= c.period {
			count++
		}
	}
	return count
}

// spend adds a restart at now to the recent ones, oldest first, and reports
// whether they are still at most intensity within the period. As in OTP, a
// restart exactly one period old counts. What was handed in is used up.
func spend(restarts []instant, now instant, intensity int, period time.Duration) (recent []instant, within bool) {
	expired := 0
	for expired < len(restarts) && now-restarts[expired] > period {
		expired++
	}
	recent = append(slices.Delete(restarts, 0, expired), now)
	return recent, len(recent) <= intensity
}
