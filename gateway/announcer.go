package gateway

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

const (
	announceDelay    = 100 * time.Millisecond // how long no list must change before clients are told, unless lists change for a whole announceInterval
	announceInterval = time.Second            // between two times that they are told
)

// An announcer has the lists that have changed and that clients have not been told of. A server that starts changes several lists, and
// several servers start at once: one notification for each list is enough.
type announcer struct {
	announce func([]catalogue.Kind) // runs on a goroutine of a timer

	mu      sync.Mutex
	changed map[catalogue.Kind]bool
	timer   *time.Timer // nil: nobody waits for it
	first   time.Time   // change that clients have not been told of
	last    time.Time   // announcement
	closed  bool
	running sync.WaitGroup
}

// add notes that lists have changed.
func (a *announcer) add(kinds ...catalogue.Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(kinds) == 0 {
		return
	}
	now := time.Now()
	if a.changed == nil {
		a.first, a.changed = now, make(map[catalogue.Kind]bool)
	}
	for _, kind := range kinds {
		a.changed[kind] = true
	}
	delay := min(announceDelay, announceInterval-now.Sub(a.first)) // lists that never stop to change are announced all the same
	wait := max(delay, announceInterval-now.Sub(a.last))
	if a.timer == nil || !a.timer.Stop() {
		a.running.Add(1)
	}
	a.timer = time.AfterFunc(wait, a.flush)
}

func (a *announcer) flush() {
	defer a.running.Done()
	a.mu.Lock()
	var kinds []catalogue.Kind
	for _, kind := range append(catalogue.Kinds(), ofRoots) {
		if a.changed[kind] {
			kinds = append(kinds, kind)
		}
	}
	a.changed, a.last = nil, time.Now()
	a.mu.Unlock()
	if len(kinds) > 0 {
		a.announce(kinds)
	}
}

// close forgets what was not told, and waits until nothing is being told.
func (a *announcer) close() {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil && a.timer.Stop() {
		a.running.Done()
	}
	a.mu.Unlock()
	a.running.Wait()
}

// ofRoots stands among the lists for the roots of clients. Servers are told of these, as seldom as clients are of the others.
const ofRoots catalogue.Kind = "roots"
