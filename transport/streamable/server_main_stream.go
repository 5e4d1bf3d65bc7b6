package streamable

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A mainStream is Main of a link. Its frames are sent on the GET stream that the client
// of the session has opened. The link's mu guards it.
//
// Several GET streams may be there, because net/http notices late that a client has gone. Only the
// last one gets frames, so that no message is sent twice. A new one first replays what the client has
// missed, up to the head at which it came into use; what is sent meanwhile waits in its queue. A frame
// is stored before anybody writes it, and therefore survives the connection that it was queued for.
type mainStream struct {
	queue     *sendQueue  // of the listener in use; nil before the first frame for it
	listeners []*response // the last one is in use; the earlier ones are ending
	head      uint64      // index of the last stored event
	taken     uint64      // index of the last event that a listener got
	reported  bool        // the log already says that messages are missing
	issued    bool        // the client may know the id of an event
}

// theMain returns the Main of a link, and creates it if the session has not used it yet.
// Most idle sessions have not. The caller holds l.mu.
func (l *serverLink) theMain() *mainStream {
	if l.main == nil {
		l.main = new(mainStream)
	}
	return l.main
}

// listener returns the GET stream in use, or nil.
func (main *mainStream) listener() *response {
	if main == nil {
		return nil
	}
	if n := len(main.listeners); n > 0 && main.listeners[n-1].cut == nil {
		return main.listeners[n-1]
	}
	return nil
}

// sendMain sends a frame on Main.
func (l *serverLink) sendMain(o transport.Outbound) error {
	l.mu.Lock()
	if l.ending != nil {
		l.mu.Unlock()
		return transport.ErrClosed
	}
	err := l.pushMain(o)
	due := err == nil && l.saved.reserve(l.main.head)
	l.mu.Unlock()
	if due {
		l.saved.saveAgain()
	}
	return err
}

// pushMain queues a frame, or stores it for a client whose GET stream has broken off.
// Main can be busy, because it has only one client. The caller holds l.mu.
func (l *serverLink) pushMain(o transport.Outbound) error {
	w := l.main.listener()
	if w == nil && !l.expects(o.Route.Kind) {
		return noRoute(transport.Main)
	}
	m := l.theMain()
	o.Last = false // Main has no end
	if w != nil && m.queue == nil {
		m.queue = l.newQueue()
		w.queue = m.queue
	}
	switch {
	case w == nil: // the event is stored, and the client will come back for it
	case m.queue.push(o):
	case m.queue.Len() > 0:
		return transport.ErrBusy
	default: // other clients have so much unread that there is no room for even one frame
		m.queue.refused = false
		w.cut = ErrNotReading
		w.interrupt()
		w = nil
	}
	// It counts whether or not the store keeps it: an index is never used twice.
	m.head++
	l.events.Append(l.session, l.storedEvent(transport.Main, m.head, o))
	if w != nil {
		m.issued = true
		w.signal()
	}
	return nil
}

// ListensSince implements transport.Detacher.
func (l *serverLink) ListensSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.main.listener() == nil {
		return time.Time{}
	}
	return l.since
}

// Detach implements transport.Detacher. The client may be gone, so nothing waits until it has taken what was written.
func (l *serverLink) Detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.main.listener(); w != nil {
		w.cut = ErrNotReading
		w.interrupt()
	}
}

// expects reports whether a message is stored for a client that has no GET stream at
// present. A client that had one comes back. A client that has just begun its session
// will soon open one, and would miss earlier changes. Requests are not stored for the
// latter, because their senders wait.
func (l *serverLink) expects(kind jsonrpc.Kind) bool {
	away := time.Since(l.since)
	return l.main != nil && l.main.issued && away <= awayTime || kind == jsonrpc.KindNotification && away <= comingTime
}

// add puts a GET stream into use, and reports whether Writable is due. It ends the
// previous one, whose client may not know yet that its connection is dead.
func (main *mainStream) add(w *response) (writableDue bool) {
	if old := main.listener(); old != nil {
		writableDue = main.queue.writableDue()
		old.cut = errReplaced
		if old.numbered.main == nil { // the previous stream still replays stored events
			old.interrupt()
		}
		old.signal()
	}
	// The frames in it are stored, and this stream replays them.
	main.queue = nil
	main.issued = main.issued || w.numbered.initialID
	main.listeners = append(main.listeners, w)
	return writableDue
}

// remove removes a GET stream. It reports whether Writable is due, because a frame that
// was refused can now be stored or is lost. Streams may end in any order.
func (main *mainStream) remove(w *response) (writableDue bool) {
	defer w.queue.drop()
	isLatest := main.listeners[len(main.listeners)-1] == w
	main.listeners = slices.DeleteFunc(main.listeners, func(other *response) bool { return other == w })
	if !isLatest {
		return false
	}
	writableDue = main.queue.writableDue()
	main.queue, w.link.since = nil, time.Now()
	return writableDue
}

// listen serves a GET request until its stream ends. The stream continues after the
// event that the client names or, if it names none, after the last one that a listener
// got. It leaves out events that are no longer stored.
func (l *serverLink) listen(ctx context.Context, w http.ResponseWriter, o *HandlerOptions, from *eventID) *refusal {
	s := newResponse(l, w, o.KeepAlive)
	if !s.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	l.mu.Lock()
	main := l.theMain()
	// Under one lock: frames up to head are replayed, and those after it come into the queue of s. So
	// none is missed, and none is written twice.
	isOver, head, due := l.ending != nil, main.head, false
	s.numbered = &numbering{to: s, at: main.taken, initialID: wantsInitialID(l.version), retry: o.Retry}
	if from != nil {
		s.numbered.at = min(from.index, head)
	}
	if !isOver {
		due = main.add(s)
		l.since = time.Now()
	}
	l.mu.Unlock()
	if due {
		l.recv.Tell(transport.Receiver.Writable)
	}
	if isOver {
		return l.refusal(jsonrpc.ID{})
	}
	defer func() {
		l.stopListening(s)
		s.forget()
	}()
	s.begin()
	err := s.catchUpMain(ctx, head)
	l.tellMissing(s, o)
	if err == nil {
		s.stream(ctx, nil, func([]transport.Outbound) {}) // the end of this stream is not reported, because the client may come back
	}
	return nil
}

// tellMissing logs that a client has come back for messages that are no longer stored.
// It does so once for each session, because a client can ask again and again.
func (l *serverLink) tellMissing(s *response, o *HandlerOptions) {
	if s.numbered.missing == 0 {
		return
	}
	l.mu.Lock()
	reported := l.main.reported
	l.main.reported = true
	l.mu.Unlock()
	if !reported {
		o.logger().Warn("bowline: messages that a client has missed are not kept any more", "identity", l.key.Identity, "address", l.key.Network, "messages", s.numbered.missing)
	}
}

// catchUpMain writes the stored events of Main, up to the index head. The queue
// continues after that.
func (r *response) catchUpMain(ctx context.Context, head uint64) error {
	if err := r.numbered.replay(ctx, head, true); err != nil {
		return err
	}
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	// Only now do frames of the queue count as taken. A replay that breaks off begins again where it
	// was.
	r.numbered.at, r.numbered.main = head, r.link.main
	r.link.main.taken = max(r.link.main.taken, head)
	return nil
}

// stopListening takes a GET stream out of use. Once the link is ending, nobody waits for Writable.
func (l *serverLink) stopListening(w *response) {
	l.mu.Lock()
	due := l.main.remove(w) && l.ending == nil
	l.mu.Unlock()
	if due {
		l.recv.Tell(transport.Receiver.Writable)
	}
}
