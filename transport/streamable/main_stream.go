package streamable

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A mainStream is Main of a link: it leads to the GET request that the client of
// the session has opened. The link's mu guards it.
type mainStream struct {
	queue     *sendQueue  // nil while nothing is queued and nobody listens
	listeners []*response // the last one is in use, earlier ones are being cut
	head      uint64      // index of the last event that was kept
	taken     uint64      // and of the last one that a listener was given
	told      bool        // the log was told that messages are missing
	issued    bool        // the client may know the id of an event
	left      time.Time   // when the last listener has gone, or the session began; zero if no listener can come
}

// listener returns the GET stream in use, or nil.
func (m *mainStream) listener() *response {
	if n := len(m.listeners); n > 0 && m.listeners[n-1].cut == nil {
		return m.listeners[n-1]
	}
	return nil
}

// pushMain queues a frame, or keeps it for a client whose GET stream has broken
// off. The stream can be busy: it has one client. The caller holds l.mu.
func (l *serverLink) pushMain(o transport.Outbound) error {
	m := &l.main
	w := m.listener()
	o.Last = false // Main has no end
	switch {
	case w == nil && !m.expects(o.Route.Kind):
		return noRoute(transport.Main)
	case w == nil: // the client comes for it
	case m.queue.push(o):
	case m.queue.Len() > 0:
		return transport.ErrBusy
	default: // others leave so much unread that not even one frame fits
		m.queue.refused = false
		w.cut = ErrNotReading
		w.interrupt()
		w = nil
	}
	m.head++
	l.keep(transport.Main, m.head, o)
	if w != nil {
		m.issued = true
		w.signal()
	}
	return nil
}

// expects reports whether a message is kept for a client that does not listen. One
// that did comes back. One that has just begun its session is about to open its
// stream: a change that comes earlier would be lost. A request is not kept for that
// one, since its sender waits.
func (m *mainStream) expects(kind jsonrpc.Kind) bool {
	away := time.Since(m.left)
	return m.issued && away <= awayTime || kind == jsonrpc.KindNotification && away <= comingTime
}

// add makes a GET stream the one in use, and reports whether Writable is due. It
// ends the one before, whose client may not know yet that its connection is dead.
func (m *mainStream) add(w *response, queue *sendQueue) (writableDue bool) {
	if old := m.listener(); old != nil {
		writableDue = m.queue.writableDue()
		old.cut = errReplaced
		if old.numbered.main == nil { // it still replays
			old.interrupt()
		}
		old.signal()
	}
	m.queue, w.queue = queue, queue
	m.issued = m.issued || w.numbered.primes
	m.listeners = append(m.listeners, w)
	return writableDue
}

// remove takes a GET stream out. It reports whether Writable is due: a frame that
// was refused is now kept, or leads to nobody. Streams that were cut may end in any
// order.
func (m *mainStream) remove(w *response) (writableDue bool) {
	defer w.queue.drop()
	m.listeners = slices.DeleteFunc(m.listeners, func(other *response) bool { return other == w })
	if m.listener() != nil || m.queue == nil {
		return false
	}
	writableDue = m.queue.writableDue()
	m.queue, m.left = nil, time.Now()
	return writableDue
}

// listen serves a GET request until its stream ends. It goes on behind the event
// that the client names or, if it names none, behind the last one that a listener
// was given. Events that are not kept any more are left out.
func (l *serverLink) listen(w http.ResponseWriter, r *http.Request, o *HandlerOptions, from *eventID) *refusal {
	s := newResponse(l, w, o.KeepAlive)
	if !s.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	l.mu.Lock()
	isOver, head, due := l.reason != nil, l.main.head, false
	s.numbered = &numbering{at: l.main.taken, primes: primed(l.version), retry: o.Retry}
	if from != nil {
		s.numbered.at = min(from.index, head)
	}
	if !isOver {
		due = l.main.add(s, l.newQueue())
	}
	l.mu.Unlock()
	if due {
		l.told.Tell(transport.Receiver.Writable)
	}
	if isOver {
		return l.refusal(jsonrpc.ID{})
	}
	defer l.stopListening(s)
	s.begin()
	err := s.catchUpMain(r.Context(), head)
	l.tellMissing(s, o)
	if err == nil {
		s.stream(r.Context(), nil, func([]transport.Outbound) {}) // nobody hears of its end: the client may come back
	}
	return nil
}

// tellMissing logs that a client has come back for messages that are not kept any
// more: once for each session, since a client can ask again and again.
func (l *serverLink) tellMissing(s *response, o *HandlerOptions) {
	if s.missing == 0 {
		return
	}
	l.mu.Lock()
	told := l.main.told
	l.main.told = true
	l.mu.Unlock()
	if !told {
		o.logger().Warn("bowline: messages that a client has missed are not kept any more", "identity", l.key.client.identity, "address", l.key.client.address, "messages", s.missing)
	}
}

// catchUpMain writes what is kept of Main, up to an index behind which the queue
// goes on.
func (r *response) catchUpMain(ctx context.Context, head uint64) error {
	if err := r.replay(ctx, head, true); err != nil {
		return err
	}
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.numbered.at, r.numbered.main = head, &r.link.main
	r.link.main.taken = max(r.link.main.taken, head)
	return nil
}

func (l *serverLink) stopListening(w *response) {
	l.mu.Lock()
	due := l.main.remove(w) && l.reason == nil
	l.mu.Unlock()
	if due {
		l.told.Tell(transport.Receiver.Writable)
	}
}
