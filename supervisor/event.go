package supervisor

import (
	"fmt"
	"sync"
	"time"
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
	Dropped    uint64 // events that OnEvent has missed so far: it was slow, or it panicked
}

func (e Event) String() string {
	text := fmt.Sprintf("%s: %s: %s", title(e.Supervisor), e.Child, e.Kind)
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
	supervisor string
	hook       func(Event) // may be nil

	mu      sync.Mutex
	waiting []Event
	dropped uint64
	telling chan struct{} // nil while nothing is told; closed when the goroutine ends
	ended   bool          // settle was called
}

// tell adds an event. It never blocks.
func (n *news) tell(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.hook == nil || n.ended:
		return
	case len(n.waiting) >= maxEvents:
		n.dropped++
		return
	}
	n.waiting = append(n.waiting, e)
	if n.telling == nil {
		n.telling = make(chan struct{})
		go n.run(n.telling)
	}
}

func (n *news) run(telling chan struct{}) {
	defer close(telling)
	for e, more := n.next(); more; e, more = n.next() {
		n.tellOne(e)
	}
}

func (n *news) next() (e Event, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		n.waiting, n.telling = nil, nil
		return Event{}, false
	}
	e, n.waiting = n.waiting[0], n.waiting[1:]
	e.Supervisor, e.Dropped = n.supervisor, n.dropped
	return e, true
}

// tellOne calls the hook. One that panics misses this event only.
func (n *news) tellOne(e Event) {
	defer func() {
		if recover() != nil {
			n.mu.Lock()
			n.dropped++
			n.mu.Unlock()
		}
	}()
	n.hook(e)
}

// resume takes events again, after settle.
func (n *news) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = false
}

// settle takes no more events, waits until the hook was told all of them, and
// reports whether that came about within the limit.
func (n *news) settle(limit time.Duration) bool {
	n.mu.Lock()
	n.ended = true
	telling := n.telling
	n.mu.Unlock()
	if telling == nil {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-telling:
		return true
	case <-timer.C:
	}
	n.mu.Lock()
	n.waiting = nil // nothing follows the call that does not return
	n.mu.Unlock()
	return false
}
