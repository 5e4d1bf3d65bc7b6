package supervisor

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/internal/ondemand"
)

// An EventKind is what happened, as a value to switch on.
type EventKind string

const (
	ChildStarted   EventKind = "child started"
	ChildRestarted EventKind = "child restarted" // its Run ended and another began; Err says how it ended
	ChildStopped   EventKind = "child stopped"   // it is over: stopped, or returned without an error
	ChildFailed    EventKind = "child failed"    // it is over: Err, and no restart
	ChildStuck     EventKind = "child stuck"     // it ignores its stop; Err is a *StuckError
	GaveUp         EventKind = "gave up"         // one restart too many; Err is an *IntensityError
)

// An Event is one thing that happened to a child.
type Event struct {
	Kind       EventKind
	Supervisor string // Options.Name
	Child      string
	Restarts   int // of this child so far
	Err        error
	At         time.Time
	Dropped    uint64 // events that OnEvent has missed so far: it was slow, or it panicked, or it did not return before a stop was over
}

func (e Event) String() string {
	text := fmt.Sprintf("%s: %s: %s", title(e.Supervisor), plain(e.Child), e.Kind)
	if e.Err == nil {
		return text
	}
	return text + ": " + firstLine(e.Err)
}

const (
	maxEvents = 1024      // that wait for the hook
	hookName  = "OnEvent" // how a hook that does not return is named
)

// news carries events to the hook, in order, on a goroutine that exists only
// while there are events.
type news struct {
	ondemand.Worker
	supervisor string
	hook       func(Event) // may be nil

	waiting []Event
	dropped uint64
	ended   bool // settle was called
}

// tell adds an event. It never blocks.
func (n *news) tell(e Event) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	switch {
	case n.hook == nil:
	case n.ended || len(n.waiting) >= maxEvents:
		n.dropped++
	default:
		n.waiting = append(n.waiting, e)
		n.Start(n.tellNext)
	}
}

// tellNext calls the hook. One that panics, or ends its goroutine, misses this
// event only.
func (n *news) tellNext() (more bool) {
	e, more := n.next()
	if !more {
		return false
	}
	heard := false
	defer func() {
		if !heard {
			_ = recover()
			n.miss(1)
		}
	}()
	n.hook(e)
	heard = true
	return true
}

func (n *news) next() (e Event, more bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if len(n.waiting) == 0 {
		n.waiting = nil
		n.End()
		return Event{}, false
	}
	e, n.waiting = n.waiting[0], n.waiting[1:]
	e.Supervisor, e.Dropped = n.supervisor, n.dropped
	return e, true
}

func (n *news) miss(events int) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.dropped += uint64(events)
}

// resume takes events again, after settle.
func (n *news) resume() {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.ended = false
}

// settle takes no more events, waits until the hook was told all of them, and
// reports whether that came about within the limit. If not, nothing follows the
// call that does not return.
func (n *news) settle(limit time.Duration) bool {
	n.end()
	if n.Await(limit) {
		return true
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.dropped += uint64(len(n.waiting))
	n.waiting = nil
	return false
}

func (n *news) end() {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.ended = true
}
