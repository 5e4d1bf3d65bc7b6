package streamable

import (
	"container/list"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/delivery"
)

// A serverSession is a link: that of one session, or of all messages without one.
// It has no goroutine of its own.
type serverSession struct {
	id       string // empty: the link of messages without a session
	acceptor Acceptor
	identity string // who has begun it
	maxFrame int
	table    *sessions
	to       delivery.Delivery
	credit   budget        // of Main
	closing  chan struct{} // closed with the reason

	mu        sync.Mutex
	batches   bool // the client has negotiated the revision that has them
	drawn     transport.Stream
	answers   map[transport.Stream]*answer
	main      *backlog // of Main; nil when nothing is queued and no listener is there
	listeners []*route // GET streams; the last is in use, earlier ones are being cut
	reason    error    // why it is over
	forced    bool     // nothing more is written
	unsent    []transport.Tag
	gone      chan struct{} // closed when it has ended; made with the reason
	left      error         // what has not ended; set before gone is closed

	// Guarded by table.mu.
	users   int           // HTTP requests under way
	ready   bool          // it was bound, and may have users
	removed bool          // it can have no new ones
	quiet   chan struct{} // closed when a removed session has no users
	place   *list.Element // among the idle ones; nil when it is not idle
	since   time.Time     // when it became idle
}

func (h *Handler) newSession(id string, a Acceptor) *serverSession {
	return &serverSession{id: id, acceptor: a, maxFrame: h.options.MaxFrame, table: &h.sessions, closing: make(chan struct{})}
}

// drawSessionID returns 256 random bits as visible ASCII.
func drawSessionID() string {
	var bits [32]byte
	rand.Read(bits[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

func (s *serverSession) isStateless() bool { return s.id == "" }

// Bind implements transport.Link.
func (s *serverSession) Bind(to transport.Receiver) { s.to.Bind(to) }

// Send implements transport.Link.
func (s *serverSession) Send(o transport.Outbound) error {
	if len(o.Frame) > s.maxFrame {
		return &transport.OversizedError{Limit: s.maxFrame, Size: len(o.Frame)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return transport.ErrClosed
	}
	if o.Stream == transport.Main {
		return s.sendOnMain(o)
	}
	a := s.answers[o.Stream]
	if a == nil || !a.push(o) {
		return noRoute(o.Stream)
	}
	return nil
}

// sendOnMain may say that the link is busy: who listens there is its one client.
func (s *serverSession) sendOnMain(o transport.Outbound) error {
	l := s.listener()
	if l == nil {
		return noRoute(transport.Main)
	}
	if !l.box.push(o) {
		return transport.ErrBusy
	}
	l.signal()
	return nil
}

func noRoute(stream transport.Stream) error {
	return fmt.Errorf("streamable: send on stream %d: %w", stream, transport.ErrNoRoute)
}

// Grant implements transport.Link.
func (s *serverSession) Grant(stream transport.Stream, frames int) {
	if stream == transport.Main {
		s.credit.give(frames)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answers[stream]; a != nil {
		a.credit += frames
		a.signal()
	}
}

// Resume implements transport.Link. No stream of this side can be resumed.
func (s *serverSession) Resume(transport.Stream) {}

// End implements transport.Link.
func (s *serverSession) End(stream transport.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answers[stream]; a != nil {
		a.over = true
		a.signal()
	}
}

// deliver hands a message that belongs to no request to the receiver, for one
// credit of Main.
func (s *serverSession) deliver(w http.ResponseWriter, r *http.Request, p *posted) *refusal {
	if !s.credit.take(r.Context(), s.closing, 1) {
		return s.refusal(jsonrpc.ID{})
	}
	in := p.take()
	if !s.to.Tell(func(to transport.Receiver) { to.Receive(in) }) {
		return s.refusal(jsonrpc.ID{})
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// refusal is what a request hears that this session does not answer any more.
func (s *serverSession) refusal(id jsonrpc.ID) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil || s.reason == transport.ErrClosed {
		return shuttingDown(id)
	}
	return sessionNotFound(id)
}
