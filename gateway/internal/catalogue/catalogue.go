package catalogue

import (
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Catalogue is what is known now. All its methods may be called from every goroutine.
type Catalogue struct {
	path string // "": nothing is saved

	now     atomic.Pointer[Snapshot]
	mu      sync.Mutex // held by those who replace the snapshot
	changed wait.Changes

	saving sync.Mutex // held by Save
	saved  *Snapshot
	unread error // why the file could not be read, which is kept until Replace
}

// New returns an empty Catalogue that is not saved.
func New() *Catalogue {
	c := &Catalogue{}
	c.now.Store(Empty())
	return c
}

// Snapshot returns what is known now. It never waits.
func (c *Catalogue) Snapshot() *Snapshot { return c.now.Load() }

// Changed returns a channel that is closed when there is a newer Snapshot. Call it before Snapshot, so that nothing is
// missed between the two.
func (c *Catalogue) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed.Next()
}

// Apply takes over the servers of a file; see [Snapshot.Apply]. It returns the kinds of which something else is
// offered now.
func (c *Catalogue) Apply(plan *names.Plan, servers []Server) []Kind {
	return c.replace(func(s *Snapshot) *Snapshot { return s.Apply(plan, servers) })
}

// Learn takes over a list of a server, and reports whether something else is offered now; see [Snapshot.Learn]. The
// entries are copied.
func (c *Catalogue) Learn(from Server, kind Kind, list List) bool {
	return len(c.replace(func(s *Snapshot) *Snapshot { return s.Learn(from, kind, list) })) > 0
}

// Fail notes why a server has not said what it has of a kind; see [Snapshot.Fail].
func (c *Catalogue) Fail(from Server, kind Kind, why error) {
	c.replace(func(s *Snapshot) *Snapshot { return s.Fail(from, kind, why) })
}

// Forget forgets why a server has not said what it has; see [Snapshot.Forget].
func (c *Catalogue) Forget(from Server) {
	c.replace(func(s *Snapshot) *Snapshot { return s.Forget(from) })
}

// LearnFromOther takes over a list that another gateway has of a server, if this one knows none, or mayReplace says so of the one that it knows: in one step,
// so that one of its own connection that comes meanwhile stays. It reports whether something else is offered now.
func (c *Catalogue) LearnFromOther(of Server, kind Kind, list List, mayReplace func(own List) bool) bool {
	return len(c.replace(func(s *Snapshot) *Snapshot {
		if own, isKnown := s.ListOf(of, kind); isKnown && !mayReplace(own) {
			return s
		}
		return s.Learn(of, kind, list)
	})) > 0
}

// Approve approves tools of a server as they are now; see [Snapshot.Approve]. It reports how many, and whether something else is offered now.
func (c *Catalogue) Approve(server string, tools ...string) (count int, changed bool) {
	kinds := c.replace(func(s *Snapshot) (next *Snapshot) {
		next, count = s.Approve(server, tools...)
		return next
	})
	return count, len(kinds) > 0
}

// Pin pins the tools of a server as a cluster has them; see [Snapshot.Pin]. It reports whether something else is offered now.
func (c *Catalogue) Pin(of Server, sums map[string]string) bool {
	return len(c.replace(func(s *Snapshot) *Snapshot { return s.Pin(of, sums) })) > 0
}

func (c *Catalogue) replace(by func(*Snapshot) *Snapshot) (changed []Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.now.Load()
	next := by(before)
	if next == before {
		return nil
	}
	for _, kind := range Kinds() {
		if before.Digest(kind) != next.Digest(kind) {
			changed = append(changed, kind)
		}
	}
	c.now.Store(next)
	c.changed.Announce()
	return changed
}
