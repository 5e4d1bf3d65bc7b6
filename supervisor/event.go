package supervisor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/internal/lazyworker"
)

// An EventKind says what happened.
type EventKind string

const (
	ChildStarted   EventKind = "child started"   // its first Run begins
	ChildRestarted EventKind = "child restarted" // another Run begins; Err is how the last one failed, if it did
	ChildStopped   EventKind = "child stopped"   // it has terminated without a failure
	ChildFailed    EventKind = "child failed"    // it has terminated because of Err
	ChildStuck     EventKind = "child stuck"     // it still runs after its Shutdown; Err is a *StuckError
	GaveUp         EventKind = "gave up"         // the supervisor gave up; Err is an *IntensityError
)

// An Event is one thing that happened to a child.
type Event struct {
	Kind       EventKind
	Supervisor string // Options.Name
	Child      string // the child's ID
	Restarts   int    // how often this child was restarted so far
	Err        error
	At         time.Time

	// Dropped is how many events OnEvent has missed so far, because it was slow,
	// panicked, or did not return before a stop was over.
	Dropped uint64
}

// MarshalJSON writes the fields in words, and the error as its text.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind       EventKind `json:"kind"`
		Supervisor string    `json:"supervisor"`
		Child      string    `json:"child"`
		Restarts   int       `json:"restarts"`
		Error      string    `json:"error,omitempty"`
		At         time.Time `json:"at"`
		Dropped    uint64    `json:"dropped,omitzero"`
	}{e.Kind, e.Supervisor, e.Child, e.Restarts, textOf(e.Err), e.At, e.Dropped})
}

// String formats the event on one line.
func (e Event) String() string {
	text := fmt.Sprintf("%s: %s: %s", title(e.Supervisor), plain(e.Child), e.Kind)
	if e.Err == nil {
		return text
	}
	return text + ": " + oneLine(e.Err)
}

const (
	maxEvents = 1024      // how many events may wait for the hook
	hookName  = "OnEvent" // the name of a hook that does not return in a StuckError
)

// An eventQueue calls the hook for each event, in order, on a goroutine that
// exists only while there are events.
type eventQueue struct {
	lazyworker.Worker
	supervisor string
	hook       func(Event) // may be nil

	waiting []Event
	dropped uint64
	closed  bool
}

// add appends an event. It never blocks.
func (q *eventQueue) add(e Event) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	switch {
	case q.hook == nil:
	case q.closed || len(q.waiting) >= maxEvents:
		q.dropped++
	default:
		q.waiting = append(q.waiting, e)
		q.Start(q.deliver)
	}
}

// deliver calls the hook for the next event. A panic loses that event only.
func (q *eventQueue) deliver() (more bool) {
	e, more := q.next()
	if !more {
		return false
	}
	defer func() {
		if recover() != nil {
			q.drop(1)
		}
	}()
	q.hook(e)
	return true
}

func (q *eventQueue) next() (e Event, more bool) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.End()
		return Event{}, false
	}
	e, q.waiting = q.waiting[0], q.waiting[1:]
	e.Supervisor, e.Dropped = q.supervisor, q.dropped
	return e, true
}

func (q *eventQueue) drop(events int) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.dropped += uint64(events)
}

// reopen accepts events again, after close.
func (q *eventQueue) reopen() { q.setClosed(false) }

// close accepts no more events, and waits until the hook has received all of them, for
// at most the limit. After that, close drops the waiting events and returns false.
func (q *eventQueue) close(limit time.Duration) bool {
	q.setClosed(true)
	if q.Await(limit) {
		return true
	}
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.dropped += uint64(len(q.waiting))
	q.waiting = nil
	return false
}

func (q *eventQueue) setClosed(closed bool) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.closed = closed
}
