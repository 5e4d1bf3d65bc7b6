//bowline:pure

package life

import (
	"cmp"
	"time"

	"github.com/bowline-mcp/bowline/mcpjson"
)

const (
	demandIdle = 5 * time.Minute // when a server that starts on demand is stopped, unless the file says otherwise
	recheck    = time.Second     // between two looks at a server that is too old and in use
)

// A Rule says when a server runs. It is what the file says, with all defaults.
type Rule struct {
	OnDemand bool          // it is not started before somebody uses it
	Idle     time.Duration // how long nobody must have used it before it ends; 0: for ever
	Longest  time.Duration // how old it may be before it ends when nobody uses it; 0: as old as it wants
}

// RuleOf returns the rule for a server: what its entry says, and otherwise what the file says for all.
func RuleOf(own, all mcpjson.Life) Rule {
	r := Rule{OnDemand: cmp.Or(own.Start, all.Start) == "demand", Idle: cmp.Or(own.IdleStop, all.IdleStop)}
	if r.OnDemand {
		r.Idle = cmp.Or(r.Idle, demandIdle)
	}
	r.Idle, r.Longest = max(r.Idle, 0), max(cmp.Or(own.MaxLife, all.MaxLife), 0)
	return r
}

// Renews reports whether a server that ends is started again at once: it was only too old.
func (r Rule) Renews() bool { return !r.OnDemand && r.Idle == 0 }

// Ends returns when a server ends that was started and used last at these times, if nobody uses it until then. The zero time means never. One
// that is in use now ends a whole Idle from now, or at the next look if it is too old.
func (r Rule) Ends(started, used time.Time, inUse bool, now time.Time) (at time.Time) {
	if r.Idle > 0 {
		at = used.Add(r.Idle)
		if inUse {
			at = now.Add(r.Idle)
		}
	}
	if r.Longest > 0 {
		old := started.Add(r.Longest)
		if inUse && !old.After(now) {
			old = now.Add(recheck)
		}
		at = Earlier(at, old)
	}
	return at
}

// Earlier returns the earlier one of two times, of which zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
