package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
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

// errReplaced is the reason why a connection ends whose client has come back on another
// one.
var errReplaced = io.EOF

// resume serves a GET request that resumes the stream of a request where its client has
// lost it.
func (l *serverLink) resume(ctx context.Context, w http.ResponseWriter, o *HandlerOptions, id eventID) *refusal {
	to := newResponse(l, w, o.KeepAlive)
	if !to.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	defer to.forget()
	to.numbered = &numbering{to: to, stream: id.stream, at: id.index, retry: o.Retry}
	return to.numbered.resume(ctx)
}

// resume writes the stored events of the stream, and then what follows.
func (n *numbering) resume(ctx context.Context) *refusal {
	k, err := n.kept(ctx)
	if err != nil {
		return unreadable()
	}
	s, head, refused := n.attach(k)
	switch {
	case refused != nil:
		return refused
	case s != nil:
		return s.goOn(ctx, n.to, head)
	}
	if k, err = n.kept(ctx); err != nil { // the stream may have just ended
		return unreadable()
	}
	if k.gap || !k.last {
		return &refusal{status: http.StatusGone, text: "what follows this event is not known any more"}
	}
	return n.replayEnded(ctx, k.head)
}

func unreadable() *refusal {
	return &refusal{status: http.StatusInternalServerError, text: "the events of the stream cannot be read"}
}

// attach makes the stream continue on this response, unless the stream has ended, or events
// are missing. It returns the stream, or nil, and the index up to which stored events
// must be written first. It refuses a client that has too much unread: it may come back.
func (n *numbering) attach(k kept) (s *exchange, head uint64, refused *refusal) {
	to, l := n.to, n.to.link
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.streams.find(n.stream)
	if s == nil || !s.state.known || s.state.stage == closed || l.ending != nil || n.at > s.head {
		return nil, 0, nil
	}
	if k.gap || k.head == n.at && s.head > n.at {
		return nil, 0, nil
	}
	// What was queued for the earlier connection is stored, and this one replays it. So it begins with
	// an empty queue.
	frames := l.newFrames()
	if !frames.reserve(s.id) {
		return nil, 0, tooMuchUnread(jsonrpc.ID{})
	}
	n.initialID = wantsInitialID(l.version)
	if s.to != nil {
		s.to.interrupt()
	}
	s.leave(errReplaced)
	s.turn(resumed)
	s.frames = frames
	s.to, to.queue, to.over = to, s.frames, s.state.over
	return s, s.head, nil
}

// abortedBy aborts a response that has broken off, unless the client has disconnected.
func abortedBy(err error) *refusal {
	if err != nil && err != transport.ErrPeerClosed {
		return &refusal{abort: true}
	}
	return nil
}

// A control lets the handler of a request control the response.
type control struct{ stream *exchange }

// Turns returns who decides when the work for the request is done, which goes on behind this package, and
// whose work it is.
func (c control) Turns() (*turn.Scheduler[share.Client], share.Client) {
	return c.stream.link.turns, c.stream.link.key.Client
}

// Events implements transport.Exchange.
func (c control) Events() bool {
	s := c.stream
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.to == nil || s.link.jsonOnly || !s.to.canFlush() || !s.turn(asked) {
		return false
	}
	s.to.signal()
	return true
}

// Reserve implements transport.Reserver. A client that is away leaves nothing unread.
func (c control) Reserve(bytes int) bool {
	s := c.stream
	if bytes <= smallSize {
		return true
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.to == nil || !s.state.accepts() {
		return true
	}
	return s.frames.reserveLarge(min(bytes, s.link.maxFrame) + frameOverhead)
}

// Poll implements transport.Exchange.
func (c control) Poll(after time.Duration) bool {
	s := c.stream
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	to := s.to
	if to == nil || s.link.ending != nil || !to.canFlush() || !s.turn(polled) {
		return false
	}
	// What is queued is still written on this connection. What comes from now on is only stored.
	s.frames, to.after = s.link.newFrames(), after
	s.leave(errPolled)
	return true
}

// A forwardingControl is the Exchange of a request of a session. If the request is for a
// task that runs on another node, its server asks that node: the request itself cannot be
// forwarded, because the session is here (ADR-0075).
type forwardingControl struct {
	control
	transport.Forwarder
}
