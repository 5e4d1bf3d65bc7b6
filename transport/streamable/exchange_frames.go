package streamable

import (
	"cmp"
	"context"
	"math"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// push queues a frame. It fails with ErrNoRoute if the stream has no client any more, and with ErrNoRoom if
// the client leaves too much unread on all its streams. The stream is never busy, because a client's requests would then wait
// for each other. Instead, push ends a stream whose client does not read. There is always room for
// a last frame that is short. The caller holds link.mu.
func (s *exchange) push(o transport.Outbound) error {
	if !s.state.accepts() || s.link.jsonOnly && !o.Last { // the answer is all that the response may be
		return noRoute(s.number)
	}
	// While the client is away, a frame takes no room here: only the event store keeps it.
	if s.to != nil && !s.frames.claim(&o) {
		if isAnswer := o.Route.Kind == jsonrpc.KindResult || o.Route.Kind == jsonrpc.KindError; isAnswer && len(o.Frame) <= answerRoom {
			return s.cutOff() // its client would wait for it
		}
		return transport.ErrNoRoom
	}
	// Stored before anybody can write it, because a client that comes back must find whatever it may
	// have missed.
	if s.state.keeps(s.head, o.Last) {
		s.head++
		s.link.events.Append(s.link.session, s.link.storedEvent(s.number, s.head, o))
	}
	if o.Last {
		s.turn(ended)
	}
	if s.to == nil { // the client will come back for the frame
		s.removeIfClosed()
		return nil
	}
	if o.Last {
		// The answer fits whatever is queued. Otherwise its client would wait for it in vain.
		s.frames.Frames, s.frames.Bytes = math.MaxInt, math.MaxInt
	}
	if !s.frames.add(o) {
		return s.cutOff()
	}
	s.to.over = o.Last
	s.to.signal()
	return nil
}

// cutOff ends a stream whose client does not read. The caller holds link.mu.
func (s *exchange) cutOff() error {
	s.turn(cut)
	s.cut, s.to.cut = ErrNotReading, ErrNotReading
	// It may be in the middle of a write, which the client could hold up until its deadline.
	s.to.interrupt()
	return noRoute(s.number)
}

// end ends the stream from this side. Queued frames are still sent. The caller holds
// link.mu.
func (s *exchange) end() {
	s.turn(ended)
	if s.to == nil {
		s.removeIfClosed()
		return
	}
	s.to.over = true
	s.to.signal()
}

// removeIfClosed forgets an exchange that is over while its client is away: all its events are stored. The caller holds link.mu.
func (s *exchange) removeIfClosed() {
	if s.state.stage == closed {
		s.link.streams.remove(s)
	}
}

// leave separates the stream from its connection, if it has one. The caller holds
// link.mu.
// The goroutine of that connection sees it by cut, and does not touch the stream any more (retire).
func (s *exchange) leave(why error) {
	if to := s.to; to != nil {
		s.to, to.cut = nil, why
		to.signal()
	}
}

// note learns from frames before the client gets them: that it will know the id of an event, and how initialize
// has ended. After the answer to initialize, an ended context does not mean that the client has missed it: a client may close its
// connection as soon as it has it.
func (s *exchange) note(ctx context.Context, frames []transport.Outbound) {
	if len(frames) > 0 {
		s.link.mu.Lock()
		s.turn(opened) // also if the stream has begun without a frame
		s.link.mu.Unlock()
	}
	if s.needs != beginning {
		return
	}
	for _, o := range frames {
		switch {
		case o.Route.ID != s.id:
		case o.Route.Kind == jsonrpc.KindResult:
			if ctx.Err() == nil {
				s.session = established
			}
			// Before the client has the result, because its next request may already depend on the
			// revision.
			s.link.negotiated(o.Frame)
		case o.Route.Kind == jsonrpc.KindError:
			s.session = rejected
		}
	}
}

// status returns the status of a response that consists of one frame (2026-07-28
// basic/transports/streamable-http).
// Only a whole response has one of its own: a stream of events has begun with 200, whatever it brings.
func (s *exchange) status(o *transport.Outbound) int {
	route := &o.Route
	switch {
	case route.Kind != jsonrpc.KindError:
		return http.StatusOK
	case route.Code == jsonrpc.CodeOverloaded:
		return http.StatusServiceUnavailable
	case !s.link.isShared():
		return http.StatusOK
	}
	switch route.Code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest,
		protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case jsonrpc.CodeInvalidParams:
		if m, err := jsonrpc.Decode(o.Frame, jsonrpc.Limits{}); s.needs == lackingMeta || err == nil && protocol.IsInvalidParams(m.Error, protocol.ReasonMeta) {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// retire ends the use of a connection by the stream. Unless the client can come back, it
// also ends the stream, and what was lost with it. If the client disconnected, that
// cancels a modern request. It does not cancel a request of a session that is being
// served, although nobody can get the answer any more.
func (s *exchange) retire(to *response, err error, delivered bool) {
	l := s.link
	l.mu.Lock()
	if s.to != to { // the stream continues on another response
		to.queue.drop()
		l.mu.Unlock()
		return
	}
	s.to = nil
	// What is still queued was certainly not written.
	unsent := s.frames.Tags()
	s.frames.drop()
	closing, comesBack := l.ending != nil, s.state.known && s.cut == nil
	switch {
	case err == nil || closing:
		s.turn(finished)
	default:
		s.turn(lost)
		// The stream goes on without a connection. If it was over already, all of it is stored.
		if s.removeIfClosed(); comesBack {
			l.mu.Unlock()
			return
		}
	}
	l.streams.remove(s)
	if closing {
		l.ending.unsent = append(l.ending.unsent, unsent...)
	}
	err = cmp.Or(s.cut, err)
	isLost := err != nil && !s.state.over
	goesOn := isLost && !l.isShared() && s.cut == nil && delivered // unless it still waits
	l.mu.Unlock()
	if closing {
		return
	}
	// Not under mu, because the receiver may send at once.
	for _, tag := range unsent {
		l.failed(tag, transport.ErrNoRoute, true)
	}
	if isLost {
		l.recv.Tell(func(to transport.Receiver) {
			to.StreamLost(transport.StreamLoss{Stream: s.number, Reason: err, Waiting: goesOn})
		})
	}
}
