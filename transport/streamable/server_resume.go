package streamable

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

const (
	// eventsAfter is how long a response of a session waits for its first frame. After
	// that it becomes a stream of events, if its client can then come back for it.
	eventsAfter = time.Second

	// awayTime is how long messages are stored for a client whose GET stream has broken
	// off.
	awayTime = 5 * time.Minute

	// comingTime is how long notifications are stored for a client that has begun its
	// session and has not opened its GET stream yet.
	comingTime = 10 * time.Second
)

// errPolled is the reason why a connection ends on purpose: the client comes back later.
var errPolled = errors.New("streamable: the client polls for the response")

// An eventID identifies an event of a session by its stream and its index. Index 0 is
// the position before the first event.
type eventID struct {
	stream transport.Stream
	index  uint64
}

func (id eventID) String() string {
	return strconv.FormatUint(uint64(id.stream), 10) + "-" + strconv.FormatUint(id.index, 10)
}

func parseEventID(text string) (eventID, bool) {
	stream, index, _ := strings.Cut(text, "-")
	s, err := strconv.ParseUint(stream, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 64)
	id := eventID{transport.Stream(s), i}
	return id, err == nil && err2 == nil && id.String() == text
}

// primed reports whether clients of a revision expect an id before the first event.
// Clients of earlier revisions would try to decode its empty data.
func primed(version string) bool { return version >= protocol.Version20251125 }

// A numbering gives ids to the events of one response. Only the goroutine of the
// response uses it. A nil numbering gives none.
type numbering struct {
	stream transport.Stream
	at     uint64 // index of the last event that was taken from the queue
	primes bool
	opened bool
	retry  time.Duration
	main   *mainStream // the stream, if it is Main; nil for the stream of a request
}

// taken records that so many frames will be written next. The caller holds link.mu.
func (n *numbering) taken(frames int) {
	if n == nil {
		return
	}
	if n.at += uint64(frames); n.main != nil {
		n.main.taken = n.at
	}
}

// opening returns the first event. It has no message, and its id says from where the
// client can resume the stream. So many frames were taken already.
func (n *numbering) opening(taken int) []byte {
	if n == nil || !n.primes || n.opened {
		return nil
	}
	n.opened = true
	return eventstream.Append(nil, eventstream.Event{ID: eventID{n.stream, n.at - uint64(taken)}.String(), Retry: n.retry})
}

func (n *numbering) isOpened() bool { return n != nil && n.opened }

// goodbye returns an event that says when the client should come back.
func (n *numbering) goodbye(after time.Duration) []byte {
	return eventstream.Append(nil, eventstream.Event{ID: eventID{n.stream, n.at}.String(), Retry: after})
}

// appendEvents appends the frames that were taken last, as events.
func (n *numbering) appendEvents(text []byte, frames []transport.Outbound) []byte {
	size := 0
	for _, o := range frames {
		size += eventText + len(o.Frame)
	}
	text = slices.Grow(text, size)
	for i, o := range frames {
		var id eventID
		if n != nil {
			id = eventID{n.stream, n.at - uint64(len(frames)-i-1)}
		}
		text = n.appendEvent(text, id, o.Frame)
	}
	return text
}

// eventText is the maximum length of an event's text in addition to its data.
const eventText = len("id: 18446744073709551615-18446744073709551615\ndata: \n\n")

func (n *numbering) appendEvent(text []byte, id eventID, frame []byte) []byte {
	e := eventstream.Event{Data: oneLine(frame)}
	if n != nil {
		e.ID = id.String()
	}
	return eventstream.Append(text, e)
}

// keep stores an event of the link's session. The caller holds link.mu.
func (l *serverLink) keep(stream transport.Stream, index uint64, o transport.Outbound) {
	l.events.Append(l.session, StoredEvent{Stream: stream, Index: index, Last: o.Last, Data: oneLine(o.Frame)})
}

// resume serves a GET request that resumes the stream of a request where its client has
// lost it.
func (l *serverLink) resume(w http.ResponseWriter, r *http.Request, o *HandlerOptions, id eventID) *refusal {
	to := newResponse(l, w, o.KeepAlive)
	if !to.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	to.numbered = &numbering{stream: id.stream, at: id.index, retry: o.Retry}
	k, err := l.keptAfter(r.Context(), id)
	if err != nil {
		return unreadable()
	}
	s, head := l.attach(to, id, k)
	if s != nil {
		return s.goOn(r.Context(), to, head)
	}
	if k, err = l.keptAfter(r.Context(), id); err != nil { // the stream may have just ended
		return unreadable()
	}
	if k.gap || !k.last {
		return &refusal{status: http.StatusGone, text: "what follows this event is not known any more"}
	}
	return l.replayEnded(r.Context(), to, k.head)
}

func unreadable() *refusal {
	return &refusal{status: http.StatusInternalServerError, text: "the events of the stream cannot be read"}
}

// attach makes a stream continue on a response, unless the stream has ended, or events
// are missing. It returns the stream, or nil, and the index up to which stored events
// must be written first.
func (l *serverLink) attach(to *response, id eventID, k kept) (s *requestStream, head uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.streams.find(id.stream)
	if s == nil || !s.issued || s.cut != nil || l.reason != nil || id.index > s.head {
		return nil, 0
	}
	if k.gap || k.head == id.index && s.head > id.index {
		return nil, 0
	}
	to.numbered.primes = primed(l.version)
	if s.to != nil {
		s.to.interrupt()
	}
	s.leave(errReplaced)
	s.frames = l.newFrames()
	s.to, to.queue, to.over = to, s.frames, s.over
	return s, s.head
}

// goOn writes the stored events of the stream up to an index, and then what follows.
func (s *requestStream) goOn(ctx context.Context, to *response, head uint64) *refusal {
	err := transport.ErrPeerClosed
	defer func() { s.retire(to, err) }()
	to.begin()
	if err = to.replay(ctx, head, false); err == nil {
		err = to.stream(ctx, nil, func([]transport.Outbound) {})
	}
	return abortedBy(err)
}

// abortedBy aborts a response that has broken off, unless the client has disconnected.
func abortedBy(err error) *refusal {
	if err != nil && err != transport.ErrPeerClosed {
		return &refusal{abort: true}
	}
	return nil
}

// An exchange lets the handler of a request control the response.
type exchange struct{ stream *requestStream }

// Events implements transport.Exchange.
func (e exchange) Events() bool {
	s := e.stream
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.over || s.to == nil || !s.to.canFlush() {
		return false
	}
	s.to.asked = true
	s.to.signal()
	return true
}

// Poll implements transport.Exchange.
func (e exchange) Poll(after time.Duration) bool {
	s := e.stream
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	to := s.to
	if s.over || to == nil || to.numbered == nil || !to.numbered.primes || s.link.reason != nil || !to.canFlush() {
		return false
	}
	s.issued, s.frames, to.after = true, s.link.newFrames(), after
	s.leave(errPolled)
	return true
}
