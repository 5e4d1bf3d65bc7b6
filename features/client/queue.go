package client

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// These limit the events that wait. Beyond one of them, deliver waits for the program, and
// the bounds of the connection apply (ADR-0006).
const (
	maxEvents     = 1000
	maxEventBytes = 1 << 20 // of what they are about: a server chooses its length
)

// An eventQueue passes events to Options.OnEvent, one at a time and in order, on a
// goroutine that exists while events wait. The Conn ends that goroutine and waits for
// it.
type eventQueue struct {
	session *session

	mu       sync.Mutex
	waiting  []queuedEvent
	bytes    int // of what the waiting events are about
	running  bool
	closing  bool         // Close has begun: deliver waits for the program, so that the drain does, too
	draining bool         // new calls are refused from about now on
	early    bool         // OnEvent has got its event before that, so it may wait for a call
	away     bool         // the program got a Lost event, and no Restored event after it
	lost     uint64       // the newest epoch whose loss is known
	since    time.Time    // when the event was queued
	change   wait.Changes // for settle
}

type queuedEvent struct {
	Event
	of    eventKey
	taken chan struct{} // closed when the program gets the event; nil if nobody waits for that
}

func (q *eventQueue) wanted() bool { return q.session.client.options.OnEvent != nil }

// deliver queues an event that the server sent. It returns immediately if an equal event
// waits already, or if the event is a change, the events that wait are few and short, and the
// session is not being closed.
// Otherwise it returns when the program gets the event, or the session closes. So further
// messages of the server wait in the connection, which limits them.
func (q *eventQueue) deliver(e Event) {
	q.await(q.push(e, true))
}

// await waits until the program gets an event, or the session closes. It returns immediately if
// taken is nil.
func (q *eventQueue) await(taken <-chan struct{}) {
	if taken == nil {
		return
	}
	for status := q.session.conn.Status(); status.State != conn.Closing; status = q.session.conn.Status() {
		select {
		case <-taken:
			return
		case <-status.Changed():
		}
	}
}

// push queues an event. It returns nil, or the channel to wait for.
func (q *eventQueue) push(e Event, fromServer bool) <-chan struct{} {
	if !q.wanted() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(e, fromServer)
}

// tell queues an event about the program's own side, and writes it to the log of a program
// that has no OnEvent. NotAnswered is told by a handler, for which the drain waits, so tell waits
// during a drain until the program gets it. SchemaRefused is told by the caller of Call or ListTools, who may be
// OnEvent, and for whom the drain does not wait.
func (s *session) tell(e Event) {
	s.events.await(s.events.push(e, false))
	s.warn(e)
}

// warn writes an event about the program's own side to the log.
func (s *session) warn(e Event) {
	o := &s.client.options
	log := o.Conn.Log
	if log == nil && o.OnEvent == nil {
		log = slog.Default()
	}
	if log == nil {
		return
	}
	switch e := e.(type) {
	case *SchemaRefused:
		log.Warn("bowline: results are not checked", "conn", s.conn.Name(), "tool", e.Tool, "error", e.Err)
	case *NotAnswered:
		log.Warn("bowline: a question was not answered", "conn", s.conn.Name(), "error", e.Err)
	}
}

// offer queues an event that a list of the server causes, and waits for nobody, because OnEvent may have asked for the list. It reports
// false if too many events wait: then the event is not queued.
func (q *eventQueue) offer(e Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.wanted() {
		return true
	}
	if q.isFull(e.key()) {
		return false
	}
	q.add(e, false)
	return true
}

// isFull reports whether another event would be more than may wait.
func (q *eventQueue) isFull(of eventKey) bool {
	return len(q.waiting) >= maxEvents || q.bytes+len(of.about) > maxEventBytes
}

// add is push for a caller that holds the mutex.
func (q *eventQueue) add(e Event, fromServer bool) <-chan struct{} {
	of := e.key()
	if of != (eventKey{}) && slices.ContainsFunc(q.waiting, func(w queuedEvent) bool { return w.of == of }) {
		return nil
	}
	queued := queuedEvent{Event: e, of: of}
	isFull := q.isFull(of)
	q.bytes += len(of.about)
	_, byHandler := e.(*NotAnswered)
	if byHandler && q.draining && !q.early || fromServer && (of == eventKey{} || q.closing || isFull) {
		queued.taken = make(chan struct{})
	}
	q.waiting = append(q.waiting, queued)
	if !q.running {
		q.running = q.session.conn.Control().Go("OnEvent", q.run)
	}
	return queued.taken
}

// begin notes that the session starts without a server.
func (q *eventQueue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away, q.since = true, time.Now()
}

// pushLost reports the loss of an epoch's server, once. If the program has not yet
// received the Restored of the previous loss, pushLost combines the two losses.
func (q *eventQueue) pushLost(epoch uint64, why Reason, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.waiting)
	tell := q.lost < epoch && !q.away
	if q.lost < epoch {
		q.waiting = slices.DeleteFunc(q.waiting, func(w queuedEvent) bool { _, ok := w.Event.(*Restored); return ok })
		q.lost, q.away = epoch, true
	}
	if tell && len(q.waiting) == before {
		q.since = time.Now()
		if q.wanted() {
			q.add(&Lost{Reason: why, Next: next}, false)
		}
	}
	q.change.Announce()
}

// pushRestored ends the outage that pushLost or begin began.
func (q *eventQueue) pushRestored(failures []error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := &Restored{Failures: failures}
	if q.away {
		e.Away = time.Since(q.since)
	}
	if q.away = false; q.wanted() {
		q.add(e, false)
	}
	q.change.Announce()
}

// settle waits until the program has received all waiting events, the Lost of a server that
// is gone, and the Restored for one that is ready. From then on each event of the server is
// work of the connection until the program receives it, so that the drain waits for it. Settle
// also returns when ctx ends or the session is over. It does not wait until OnEvent returns.
// It reports whether it had to wait.
func (q *eventQueue) settle(ctx context.Context) (waited bool) {
	q.beginClosing()
	for q.wanted() && ctx.Err() == nil {
		status := q.session.conn.Status()
		changed := q.unsettled(status, q.session.isBehind)
		if changed == nil || status.State == conn.Closing {
			break
		}
		waited = true
		select {
		case <-changed:
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
	return waited
}

// isBehind is IsBehind of the restorer, for the present server.
func (s *session) isBehind(status Status) (behind bool, gone uint64) {
	return s.restore.IsBehind(status, serverOf(s.peer.Load()))
}

// unsettled returns a channel that is closed when the queue changes, or nil if the
// program has received everything. IsBehind says what the restorer has not told the queue yet.
func (q *eventQueue) unsettled(status Status, isBehind func(Status) (behind bool, gone uint64)) <-chan struct{} {
	changed := q.changed() // read this before everything else, so that no change is missed
	behind, gone := isBehind(status)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 && !behind && gone <= q.lost && !(q.away && status.State == conn.Ready) {
		return nil
	}
	return changed
}

// beginClosing makes deliver wait for the program.
func (q *eventQueue) beginClosing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
}

// beginDrain makes tell wait for the program.
func (q *eventQueue) beginDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
}

// changed returns a channel that is closed when the queue changes.
func (q *eventQueue) changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.change.Next()
}

// run passes events on until none waits. If the program ends the goroutine, for instance
// by a panic, another goroutine continues.
func (q *eventQueue) run(ctx context.Context) {
	done := false
	defer func() {
		if !done {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.running = q.session.conn.Control().Go("OnEvent", q.run)
		}
	}()
	s := &Session{session: q.session, options: q.session.client.options.Calls}
	for {
		e := q.next(ctx)
		if e == nil {
			done = true
			return
		}
		s.client.options.OnEvent(ctx, s, e)
	}
}

// next returns the oldest event. It returns nil if there is none or the session has
// ended.
func (q *eventQueue) next(ctx context.Context) Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.change.Announce()
	if len(q.waiting) == 0 || ctx.Err() != nil {
		q.waiting, q.bytes, q.running, q.early = nil, 0, false, false
		return nil
	}
	e := q.waiting[0]
	q.waiting[0] = queuedEvent{}
	q.waiting = q.waiting[1:]
	q.bytes -= len(e.of.about)
	q.early = !q.draining
	if e.taken != nil {
		close(e.taken)
	}
	return e.Event
}
