package streamable

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// ErrNotReading is the reason of a lost stream whose client reads its response too
// slowly, so that the queue of the stream is full.
var ErrNotReading = errors.New("streamable: the client does not read its response")

// An exchange is one POSTed request with the stream of its response. It keeps the parts of the request
// that determine the status of the response; the rest goes to the receiver. If its events are stored, the exchange
// outlives its connection, and the client can resume it.
//
// Three goroutines meet here. That of the POST delivers the request and writes the response. That of a later GET writes the rest, if
// the client has come back; the first one then only learns that it was replaced (to is another response). And whoever sends or ends
// the stream changes its state, with link.mu. So what the response becomes is decided under link.mu, in state alone, and written
// without it: a client that reads slowly must not hold up the other streams of its link.
//
// The receiver hears of the stream's end only if it does not know it: not if it has ended the stream itself, not if the client can come
// back, and not if the link ends, whose loss says the same.
type exchange struct {
	link     *serverLink
	number   transport.Stream
	id       jsonrpc.ID
	reserved atomic.Int64 // what was taken for the request, until Release

	needs   need    // what the response must do
	session outcome // whether the request has begun the session, if it should; only the request's goroutine uses it

	// Guarded by link.mu.
	state  exchangeState
	credit int
	frames *sendQueue
	to     *response // the response that writes the frames; nil while the client is away
	head   uint64    // the index of the last stored event
	cut    error     // why the stream was ended
}

// A need says what is special about the response to a request.
type need uint8

const (
	ordinary    need = iota
	lackingMeta      // the request lacks members that a modern one must have, so invalid params mean another status
	beginning        // the response to initialize begins the session
)

// An outcome says how the request that begins a session has ended.
type outcome uint8

const (
	undecided   outcome = iota
	established         // the session has begun, and the client was there for the result
	rejected            // the server has answered with an error
)

// turn makes a turn of the response. It reports false if nothing changes. The caller holds link.mu.
func (s *exchange) turn(t turning) (ok bool) {
	s.state, ok = s.state.after(t)
	return ok
}

// A postedExchange is an exchange with everything that it needs until its response is
// complete.
// If its client comes back on another connection, that has a queue and a numbering of its own.
type postedExchange struct {
	exchange
	first    response
	frames   sendQueue
	numbered numbering

	queued, taken [1]transport.Outbound // room for one frame, because most responses are one
}

// openStream opens the stream of a request, for which so much room was taken, and reserves room for the answer.
func (l *serverLink) openStream(w http.ResponseWriter, b *body, reserved int, o *HandlerOptions) (*exchange, *refusal) {
	posted := new(postedExchange)
	s := &posted.exchange
	s.link, s.id, s.frames, s.to = l, b.requestID(), &posted.frames, &posted.first
	switch isShared := l.isShared(); {
	case isShared && (len(b.meta.Version) == 0 || len(b.meta.Capabilities) == 0):
		s.needs = lackingMeta
	case !isShared && b.initializes():
		s.needs = beginning
	}
	posted.frames = sendQueue{link: l, taken: posted.taken[:0], Queue: parts.Queue{Frames: streamFrames}}
	posted.frames.Begin(posted.queued[:])
	// Before the link knows the stream: what could not be answered must not be executed.
	if !s.frames.reserve(s.id) {
		return s, tooMuchUnread(s.id)
	}
	s.to.init(l, w, b.control, o.KeepAlive)
	s.to.queue = s.frames
	l.mu.Lock()
	if l.ending != nil {
		l.mu.Unlock()
		s.frames.release()
		return s, l.refusal(s.id)
	}
	// A number is used once, even if the session began in another process: it goes on after those of
	// that process.
	l.opened++
	s.number = l.opened
	s.reserved.Store(int64(reserved))
	l.streams.add(s)
	if s.state.ids = l.idsOf(s.needs); s.state.ids != noIDs {
		posted.numbered = numbering{to: s.to, stream: s.number, initialID: s.state.ids == initialID, retry: o.Retry}
		s.to.numbered = &posted.numbered
	}
	due := l.saved.reserve(uint64(s.number))
	l.mu.Unlock()
	// Not under mu, because it calls the store.
	if due {
		l.saved.saveAgain()
	}
	return s, nil
}

// idsOf returns which ids the events of a response have. A response that nobody can come back for has none: that to initialize,
// because its client does not know the session yet, and a modern one, because a disconnect cancels it. The caller holds mu.
func (l *serverLink) idsOf(n need) ids {
	switch {
	case l.isShared() || l.stateless || l.jsonOnly || n == beginning:
		return noIDs
	case wantsInitialID(l.version):
		return initialID
	default:
		return laterIDs
	}
}

// Release implements transport.Room: it gives back what was taken for the request.
func (s *exchange) Release() { s.link.served.give(s.link.key.Client, int(s.reserved.Swap(0))) }

// serve delivers the request and writes the response. It releases the stream in any
// case, even if the ResponseWriter panics.
func (s *exchange) serve(ctx context.Context, b *body) *refusal {
	to, err, delivered := s.to, transport.ErrPeerClosed, false
	// Whether the request reached the receiver decides who gives back what was taken for it: Release,
	// or this.
	defer func() {
		s.retire(to, err, delivered)
		to.forget()
		if !delivered {
			s.Release()
		}
	}()
	if delivered, err = s.deliver(ctx, to, b); err == nil || err == io.EOF {
		err = transport.ErrPeerClosed // if the ResponseWriter panics
		err = s.respond(ctx, to)
	}
	if err == nil {
		return nil
	}
	if s.session == established {
		s.session = undecided // the result was not written as a whole
	}
	return s.refusal(to, s.reasonOf(err), delivered)
}

// reasonOf returns why the stream ended: the reason of a cut, and otherwise err.
func (s *exchange) reasonOf(err error) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return cmp.Or(s.cut, err)
}

// refusal returns how to end a response that could not be completed. If it has begun it
// is aborted, so that the client does not mistake it for complete.
func (s *exchange) refusal(to *response, err error, delivered bool) *refusal {
	switch {
	case to.begun && err == transport.ErrPeerClosed: // the client has disconnected
		return nil
	case to.begun, err == ErrNotReading:
		return &refusal{abort: true}
	case err == errNotItsTurn:
		return overloaded(s.id, err.Error())
	case err == errCannotFlush:
		refused := cannotFlush(s.id)
		refused.delivered = delivered
		return refused
	case delivered: // the request may have been executed, so no response may deny that
		refused := unavailable(s.id, "the session has ended before the response came")
		refused.delivered = true
		return refused
	default:
		return s.link.refusal(s.id)
	}
}

// respond writes the response, as soon as it is clear what it becomes.
func (s *exchange) respond(ctx context.Context, to *response) error {
	frames, err := s.first(ctx, to)
	switch {
	case err == io.EOF && s.link.jsonOnly: // the request was cancelled, so nobody waits for what it is answered
		to.begun = true
		to.w.WriteHeader(http.StatusAccepted)
		return nil
	case err == io.EOF: // the stream ended without a frame
		to.begin()
		return nil
	case err == errPolled && to.canFlush():
		to.begin()
		return to.writeEvents(nil, to.numbered.reconnectEvent(to.after))
	case err != nil && err != errPolled:
		return err
	}
	isJSON := s.isJSON()
	// A program's mistake. The frames are reported as lost, and the client gets a status, because
	// nothing was written yet.
	if !isJSON && !to.canFlush() {
		to.queue.written(frames)
		to.lost(frames, errCannotFlush)
		return errCannotFlush
	}
	// What the client is about to learn must be known first: it may come back with the id of an event
	// as soon as it has read it.
	note := func(frames []transport.Outbound) { s.note(ctx, frames) }
	note(frames)
	// An error begins no session, so its response names none.
	if s.needs == beginning && s.session != rejected && !s.link.stateless {
		to.w.Header().Set(headerSession, s.link.session)
	}
	if isJSON {
		return to.json(s.status(&frames[0]), frames[0])
	}
	to.begin()
	return to.stream(ctx, frames, note)
}

func (s *exchange) isJSON() bool {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.state.stage == asJSON
}

// first waits for the first frames. It returns none if the response must become a stream
// of events before: because the handler asked for it, because its client can then come
// back for it, or to keep the connection.
func (s *exchange) first(ctx context.Context, to *response) ([]transport.Outbound, error) {
	patience := to.keepAlive
	if to.numbered != nil && to.numbered.initialID {
		patience = min(patience, eventsAfter)
	}
	to.alarm.set(patience)
	for {
		// Without a Flusher the response cannot begin early, so it waits for a frame, however long that
		// takes.
		frames, begins, err := s.takeFirst(to, to.alarm.isOver() && to.canFlush() && !s.link.jsonOnly)
		if begins || err != nil {
			return frames, err
		}
		select {
		case <-to.alarm.wake:
		case <-ctx.Done():
			return nil, transport.ErrPeerClosed
		}
	}
}

// takeFirst takes the first frames, and reports whether the response begins with them, or without any.
// That is decided in the same moment, so that no frame can come between.
func (s *exchange) takeFirst(to *response, isLate bool) (frames []transport.Outbound, begins bool, err error) {
	l := s.link
	l.mu.Lock()
	frames, relieved, err := to.take()
	switch {
	case len(frames) > 0 && frames[0].Last:
		begins = true
		s.turn(answered)
	case len(frames) > 0:
		begins = true
		s.turn(opened)
	case err == nil && (isLate || s.state.stage == asEvents):
		begins = true
		s.turn(waited)
	}
	l.mu.Unlock()
	if relieved {
		l.recv.Tell(transport.Receiver.Writable)
	}
	return frames, begins, err
}

// deliver begins the stream and delivers the request, for one credit of the stream. A
// receiver that works on this goroutine grants the credit in the same turn, unless it is
// closing. The error is io.EOF if the stream was ended first.
func (s *exchange) deliver(ctx context.Context, to *response, b *body) (delivered bool, err error) {
	recv := &s.link.recv
	if recv.Lends() {
		if b.batch {
			delivered, err = s.deliverBatch(ctx, b)
		} else {
			delivered = recv.BeginWith(s.number, func() transport.Inbound { return s.take(b) })
		}
		if delivered || err != nil {
			return delivered, err
		}
	}
	// The receiver wants to grant credit first, or works on a goroutine of its own.
	recv.Begin(s.number)
	for {
		granted, err := s.hasCredit()
		if err != nil {
			return false, err
		}
		if granted {
			in := s.take(b)
			if delivered = recv.Receive(in); !delivered { // the link was just lost; first notices it
				b.putBack(in)
			}
			return delivered, nil
		}
		select {
		case <-to.alarm.wake:
		case <-ctx.Done():
			return false, transport.ErrPeerClosed
		}
	}
}

// deliverBatch delivers a batch when it is the turn of its client: the receiver takes it apart, and answers some messages at once.
func (s *exchange) deliverBatch(ctx context.Context, b *body) (delivered bool, err error) {
	refused := b.inTurn(ctx, func() *refusal {
		delivered = s.link.recv.BeginWith(s.number, func() transport.Inbound { return s.take(b) })
		return nil
	})
	switch {
	case refused == nil:
		return delivered, nil
	case ctx.Err() != nil:
		return false, transport.ErrPeerClosed
	default:
		return false, errNotItsTurn
	}
}

// take returns the request of a body as an inbound frame.
func (s *exchange) take(b *body) transport.Inbound {
	in := b.take()
	in.Stream, in.Last, in.Room = s.number, true, s
	in.Origin.Exchange = control{s}
	if b.forwarder != nil {
		in.Origin.Exchange = forwardingControl{control{s}, b.forwarder}
	}
	return in
}

// hasCredit reports whether the stream has credit. The request is the only frame that it delivers, so the credit is not
// counted down. hasCredit fails if none will come any more, because the link or the stream has ended.
func (s *exchange) hasCredit() (granted bool, err error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	switch {
	case s.link.ending != nil:
		return false, transport.ErrClosed
	case s.state.over:
		return false, io.EOF
	default:
		return s.credit > 0, nil
	}
}

// goOn writes the stored events of the stream up to an index, and then what follows.
// If yet another response replaces this one, retire leaves the stream to that.
func (s *exchange) goOn(ctx context.Context, to *response, head uint64) *refusal {
	err := transport.ErrPeerClosed
	defer func() { s.retire(to, err, true) }()
	to.begin()
	if err = to.numbered.replay(ctx, head, false); err == nil {
		err = to.stream(ctx, nil, func([]transport.Outbound) {})
	}
	return abortedBy(err)
}
