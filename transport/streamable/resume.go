package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
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
	size := len(text)
	for _, o := range frames {
		size += len("id: 18446744073709551615-18446744073709551615\ndata: \n\n") + len(o.Frame)
	}
	text = append(make([]byte, 0, size), text...)
	for i, o := range frames {
		e := eventstream.Event{Data: oneLine(o.Frame)}
		if n != nil {
			e.ID = eventID{n.stream, n.at - uint64(len(frames)-i-1)}.String()
		}
		text = eventstream.Append(text, e)
	}
	return text
}

// keep stores an event of the link's session. The caller holds link.mu.
func (l *serverLink) keep(stream transport.Stream, index uint64, o transport.Outbound) {
	l.events.Append(l.session, StoredEvent{Stream: stream, Index: index, Last: o.Last, Data: oneLine(o.Frame)})
}

// resume serves a GET request that takes up the stream of a request where its
// client has lost it.
func (l *serverLink) resume(w http.ResponseWriter, r *http.Request, o *HandlerOptions, id eventID) *refusal {
	to := newResponse(l, w, o.KeepAlive, nil)
	if !to.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	to.numbered = &numbering{stream: id.stream, at: id.index, retry: o.Retry}
	missed, err := to.missed(r.Context())
	s, head := l.attach(to, id, missed)
	if s == nil && err == nil {
		missed, err = to.missed(r.Context()) // the stream may have ended just now
	}
	switch {
	case err != nil:
		return &refusal{status: http.StatusInternalServerError, text: "the events of the stream cannot be read"}
	case s == nil && !isRest(missed, id.index):
		return &refusal{status: http.StatusGone, text: "what follows this event is not known any more"}
	case s == nil:
		to.begin()
		_ = to.replay(missed) // the client may come back for it
		return nil
	}
	err = transport.ErrPeerClosed
	defer func() { s.retire(to, err) }()
	to.begin()
	if err = to.catchUp(r.Context(), missed, head); err == nil {
		err = to.stream(r.Context(), nil, func([]transport.Outbound) {})
	}
	if err != nil && err != transport.ErrPeerClosed {
		return &refusal{abort: true}
	}
	return nil
}

// attach makes a response the one on which a stream goes on, unless the stream has
// ended, or events are missing. It returns the stream, or nil, and the index up to
// which the client has to be given what was kept.
func (l *serverLink) attach(to *response, id eventID, missed []StoredEvent) (s *requestStream, head uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.streams[id.stream]
	if s == nil || !s.issued || l.reason != nil || id.index > s.head {
		return nil, 0
	}
	if !follow(missed, id.index) || len(missed) == 0 && s.head > id.index {
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

// follow reports whether events follow an index without a gap.
func follow(events []StoredEvent, index uint64) bool {
	for n, e := range events {
		if e.Index != index+uint64(n)+1 {
			return false
		}
	}
	return true
}

// isRest reports whether events are all that follow an index in their stream.
func isRest(events []StoredEvent, index uint64) bool {
	return follow(events, index) && len(events) > 0 && events[len(events)-1].Last
}

// missed returns what is kept behind the events that the response has written.
func (r *response) missed(ctx context.Context) ([]StoredEvent, error) {
	return r.link.events.After(ctx, r.link.session, r.numbered.stream, r.numbered.at)
}

// upTo leaves out the events that the queue of a response holds, too.
func upTo(head uint64, events []StoredEvent) []StoredEvent {
	for len(events) > 0 && events[len(events)-1].Index > head {
		events = events[:len(events)-1]
	}
	return events
}

// catchUp writes what was kept, up to an index behind which the queue goes on.
func (r *response) catchUp(ctx context.Context, missed []StoredEvent, head uint64) error {
	for {
		if err := r.replay(upTo(head, missed)); err != nil {
			return err
		}
		from := r.numbered.at
		if from >= head {
			return nil
		}
		var err error
		if missed, err = r.missed(ctx); err != nil || len(missed) == 0 || !follow(missed, from) {
			return errPurged
		}
	}
}

// errPurged is why a replay breaks off.
var errPurged = errors.New("streamable: the events of the stream are not kept any more")

// replay writes events that were kept. They may have gaps.
func (r *response) replay(missed []StoredEvent) error {
	text := r.numbered.opening(0)
	for _, e := range missed {
		r.numbered.at = e.Index
		text = r.numbered.appendEvents(text, []transport.Outbound{{Frame: e.Data}})
		if len(text) < writeSize {
			continue
		}
		if err := r.writeEvents(nil, text); err != nil {
			return err
		}
		text = nil
	}
	if len(text) == 0 {
		return nil
	}
	return r.writeEvents(nil, text)
}

// errReplaced is why a connection is given up: the client has come back on another.
var errReplaced = io.EOF
