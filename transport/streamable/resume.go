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
	// eventsAfter is how long a response of a session waits for its first frame
	// before it becomes a stream of events, if its client can then come back for it.
	eventsAfter = time.Second

	// awayTime is how long messages are kept for a client whose GET stream has broken
	// off.
	awayTime = 5 * time.Minute

	// comingTime is how long notifications are kept for a client that has begun its
	// session and not opened its GET stream yet.
	comingTime = 10 * time.Second
)

// errPolled is why a connection is ended on purpose: the client comes back later.
var errPolled = errors.New("streamable: the client polls for the response")

// An eventID names an event of a session: its stream, and its index there. Index 0
// is the place before the first.
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

// primed reports whether clients of a revision expect an id ahead of the first
// event. Clients of earlier ones try to read its empty data.
func primed(version string) bool { return version >= protocol.Version20251125 }

// A numbering gives ids to the events that one response writes. Only the goroutine
// of the response uses it. A nil numbering gives none.
type numbering struct {
	stream transport.Stream
	at     uint64 // index of the last event that was taken
	primes bool
	opened bool
	retry  time.Duration
	main   *mainStream // whose events they are; nil for those of a request
}

// taken notes that so many frames are about to be written. The caller holds
// link.mu.
func (n *numbering) taken(frames int) {
	if n == nil {
		return
	}
	if n.at += uint64(frames); n.main != nil {
		n.main.taken = n.at
	}
}

// opening returns the event that says from where the client can resume the stream
// before anything has come on it. So many frames were taken already.
func (n *numbering) opening(taken int) []byte {
	if n == nil || !n.primes || n.opened {
		return nil
	}
	n.opened = true
	return eventstream.Append(nil, eventstream.Event{ID: eventID{n.stream, n.at - uint64(taken)}.String(), Retry: n.retry})
}

func (n *numbering) isOpened() bool { return n != nil && n.opened }

// goodbye returns the event that says when to come back.
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

// eventText is how long the text of an event is at most, beside its data.
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

// resume serves a GET request that takes up the stream of a request where its
// client has lost it.
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
	if k, err = l.keptAfter(r.Context(), id); err != nil { // the stream may have ended just now
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

// attach makes a response the one on which a stream goes on, unless the stream has
// ended or was given up, or events are missing. It returns the stream, or nil, and
// the index up to which the client has to be given what was kept.
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

// goOn writes what was kept of the stream, up to an index, and then what follows.
func (s *requestStream) goOn(ctx context.Context, to *response, head uint64) *refusal {
	err := transport.ErrPeerClosed
	defer func() { s.retire(to, err) }()
	to.begin()
	if err = to.replay(ctx, head, false); err == nil {
		err = to.stream(ctx, nil, func([]transport.Outbound) {})
	}
	return abortedBy(err)
}

// abortedBy aborts a response that has broken off, unless nobody is there.
func abortedBy(err error) *refusal {
	if err != nil && err != transport.ErrPeerClosed {
		return &refusal{abort: true}
	}
	return nil
}
