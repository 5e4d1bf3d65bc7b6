package streamable

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// ErrNotReading is the reason of a lost stream whose client reads its response too
// slowly, so that the queue of the stream is full.
var ErrNotReading = errors.New("streamable: the client does not read its response")

// streamFrames is how many frames the stream of a request queues. If the client reads,
// there are never so many, however quickly they are sent.
const streamFrames = 16 << 10

// A requestStream is the stream of one POSTed request. It keeps the parts of the request
// that determine the status of the response; the rest goes to the receiver. If its
// events are stored, the stream outlives its connection, and the client can resume it.
type requestStream struct {
	link      *serverLink
	number    transport.Stream
	id        jsonrpc.ID
	room      atomic.Int64 // what was taken for the request, until Release
	delivered bool         // the receiver has the request
	keepsAll  bool         // the events of the stream are numbered and stored

	lacksMeta   bool // the request lacks members that a modern one must have
	initializes bool // the request begins the session
	established bool // the request has begun the session, and its client was there for the result
	rejected    bool // the request should have begun a session, and was answered with an error

	// Guarded by link.mu.
	credit int
	frames *sendQueue
	to     *response // the response that writes the frames; nil while the client is away
	head   uint64    // the index of the last stored event
	issued bool      // the client may know the id of an event
	events bool      // the handler asked for a stream of events
	over   bool      // the stream accepts no more frames
	cut    error     // why the stream was ended
}

func (l *serverLink) newQueue() *sendQueue { return &sendQueue{link: l} }

// newFrames returns a queue for the stream of a request.
func (l *serverLink) newFrames() *sendQueue {
	q := l.newQueue()
	q.Frames = streamFrames
	return q
}

// A postedStream is a stream with everything that it needs until its response is
// complete.
type postedStream struct {
	requestStream
	first    response
	frames   sendQueue
	numbered numbering

	queued, taken [1]transport.Outbound // room for one frame, because most responses are one
}

// openStream opens the stream of a request, for which so much room was taken, and reserves room for the answer.
func (l *serverLink) openStream(w http.ResponseWriter, b *body, room int, o *HandlerOptions) (*requestStream, *refusal) {
	posted := new(postedStream)
	s := &posted.requestStream
	s.link, s.id, s.frames, s.to = l, b.requestID(), &posted.frames, &posted.first
	s.lacksMeta = len(b.meta.Version) == 0 || len(b.meta.Capabilities) == 0
	s.initializes = !l.isShared() && b.initializes()
	posted.frames = sendQueue{link: l, taken: posted.taken[:0], Queue: parts.Queue{Frames: streamFrames}}
	posted.frames.Begin(posted.queued[:])
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
	l.opened++
	s.number = l.opened
	s.room.Store(int64(room))
	l.streams.add(s)
	if s.keepsAll = !l.isShared() && !l.stateless && !s.initializes; s.keepsAll {
		posted.numbered = numbering{to: s.to, stream: s.number, initialID: wantsInitialID(l.version), retry: o.Retry}
		s.to.numbered = &posted.numbered
	}
	due := l.saved.reserve(uint64(s.number))
	l.mu.Unlock()
	if due {
		l.saved.saveAgain()
	}
	return s, nil
}

// Release implements transport.Room: it gives back what was taken for the request.
func (s *requestStream) Release() { s.link.served.give(s.link.key.Client, int(s.room.Swap(0))) }

// serve delivers the request and writes the response. It releases the stream in any
// case, even if the ResponseWriter panics.
func (s *requestStream) serve(ctx context.Context, b *body) *refusal {
	to, err := s.to, transport.ErrPeerClosed
	defer func() {
		s.retire(to, err)
		to.forget()
		if !s.delivered {
			s.Release()
		}
	}()
	if err = s.run(ctx, to, b); err == nil {
		return nil
	}
	s.established = false // the result was not written as a whole
	return s.refusal(to, s.reasonOf(err))
}

// reasonOf returns why the stream ended: the reason of a cut, and otherwise err.
func (s *requestStream) reasonOf(err error) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return cmp.Or(s.cut, err)
}

// refusal returns how to end a response that could not be completed. If it has begun it
// is aborted, so that the client does not mistake it for complete.
func (s *requestStream) refusal(to *response, err error) *refusal {
	switch {
	case to.begun && err == transport.ErrPeerClosed: // the client has disconnected
		return nil
	case to.begun, err == ErrNotReading:
		return &refusal{abort: true}
	case err == errNotItsTurn:
		return overloaded(s.id, err.Error())
	case err == errCannotFlush:
		refused := cannotFlush(s.id)
		refused.delivered = s.delivered
		return refused
	case s.delivered: // the request may have been executed, so no response may deny that
		refused := unavailable(s.id, "the session has ended before the response came")
		refused.delivered = true
		return refused
	default:
		return s.link.refusal(s.id)
	}
}

func (s *requestStream) run(ctx context.Context, to *response, b *body) error {
	if err := s.deliver(ctx, to, b); err != nil && err != io.EOF {
		return err
	}
	frames, err := s.first(ctx, to)
	switch {
	case err == io.EOF: // the stream ended without a frame
		to.begin()
		return nil
	case err == errPolled && to.canFlush():
		to.begin()
		return to.writeEvents(nil, to.numbered.reconnectEvent(to.after))
	case err != nil && err != errPolled:
		return err
	}
	asJSON := len(frames) > 0 && frames[0].Last && !s.needsEvents()
	if !asJSON && !to.canFlush() {
		to.queue.written(frames)
		to.lost(frames, errCannotFlush)
		return errCannotFlush
	}
	note := func(frames []transport.Outbound) { s.note(ctx, frames) }
	note(frames)
	if s.initializes && !s.rejected && !s.link.stateless {
		to.w.Header().Set(headerSession, s.link.session)
	}
	if asJSON {
		return to.json(s.status(&frames[0]), frames[0])
	}
	to.begin()
	return to.stream(ctx, frames, note)
}

// first waits for the first frames. It returns none if the response must become a stream
// of events before: because the handler asked for it, because its client can then come
// back for it, or to keep the connection.
func (s *requestStream) first(ctx context.Context, to *response) ([]transport.Outbound, error) {
	patience := to.keepAlive
	if to.numbered != nil && to.numbered.initialID {
		patience = min(patience, eventsAfter)
	}
	to.alarm.set(patience)
	frames, err := to.next(ctx, false)
	if len(frames) == 0 && err == nil && !to.canFlush() {
		frames, err = to.next(ctx, true)
	}
	if len(frames) > 0 || err != nil {
		s.begins(frames)
		return frames, err
	}
	return s.beginsEmpty(to), nil
}

// begins records that the client may know an event id, unless the response is one frame
// that was not stored.
func (s *requestStream) begins(frames []transport.Outbound) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.issued = s.issued || s.keepsAll && len(frames) > 0 && !frames[0].Last
}

// beginsEmpty makes the response begin without a frame, unless there is one now.
func (s *requestStream) beginsEmpty(to *response) (frames []transport.Outbound) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if to.cut == nil && s.frames.Len() > 0 {
		frames, _ = s.frames.take()
		to.numbered.taken(len(frames))
		s.issued = s.issued || s.keepsAll && !frames[0].Last
		return frames
	}
	s.issued = s.issued || to.numbered != nil && to.numbered.initialID
	return nil
}

func (s *requestStream) needsEvents() bool {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.issued || s.events
}

// deliver begins the stream and delivers the request, for one credit of the stream. A
// receiver that works on this goroutine grants the credit in the same turn, unless it is
// closing. The error is io.EOF if the stream was ended first.
func (s *requestStream) deliver(ctx context.Context, to *response, b *body) error {
	told := &s.link.told
	if told.Lends() {
		begin := func() *refusal {
			s.delivered = told.BeginWith(s.number, func() transport.Inbound { return s.take(b) })
			return nil
		}
		if !b.batch {
			begin()
		} else if b.inTurn(ctx, begin) != nil { // the receiver takes it apart, and answers some messages at once
			if ctx.Err() != nil {
				return transport.ErrPeerClosed
			}
			return errNotItsTurn
		}
		if s.delivered {
			return nil
		}
	}
	told.Begin(s.number)
	for {
		granted, err := s.takeCredit()
		if err != nil {
			return err
		}
		if granted {
			in := s.take(b)
			if s.delivered = told.Receive(in); !s.delivered { // the link was just lost; next notices it
				b.putBack(in)
			}
			return nil
		}
		select {
		case <-to.alarm.wake:
		case <-ctx.Done():
			return transport.ErrPeerClosed
		}
	}
}

// take returns the request of a body as an inbound frame.
func (s *requestStream) take(b *body) transport.Inbound {
	in := b.take()
	in.Stream, in.Last, in.Room = s.number, true, s
	in.Origin.Exchange = exchange{s}
	if b.forwarder != nil {
		in.Origin.Exchange = forwardingExchange{exchange{s}, b.forwarder}
	}
	return in
}

func (s *requestStream) takeCredit() (granted bool, err error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	switch {
	case s.link.ending != nil:
		return false, transport.ErrClosed
	case s.over:
		return false, io.EOF
	case s.credit > 0:
		s.credit--
		return true, nil
	default:
		return false, nil
	}
}

// push queues a frame. It fails with ErrNoRoute if the stream has no client any more, and with ErrNoRoom if
// the client leaves too much unread on all its streams. The stream is never busy, because a client's requests would then wait
// for each other. Instead, push ends a stream whose client does not read. There is always room for
// a last frame that is short. The caller holds link.mu.
func (s *requestStream) push(o transport.Outbound) error {
	if s.over || s.cut != nil {
		return noRoute(s.number)
	}
	if s.to != nil && !s.frames.claim(&o) {
		if isAnswer := o.Route.Kind == jsonrpc.KindResult || o.Route.Kind == jsonrpc.KindError; isAnswer && len(o.Frame) <= answerRoom {
			return s.cutOff() // its client would wait for it
		}
		return transport.ErrNoRoom
	}
	if s.keepsAll && (s.issued || s.head > 0 || !o.Last) {
		s.head++
		s.link.events.Append(s.link.session, s.link.storedEvent(s.number, s.head, o))
	}
	if s.over = o.Last; s.to == nil { // the client will come back for the frame
		if s.over {
			s.link.streams.remove(s)
		}
		return nil
	}
	if o.Last {
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
func (s *requestStream) cutOff() error {
	s.cut, s.to.cut = ErrNotReading, ErrNotReading
	s.to.interrupt()
	return noRoute(s.number)
}

// end ends the stream from this side. Queued frames are still sent. The caller holds
// link.mu.
func (s *requestStream) end() {
	if s.over = true; s.to == nil {
		s.link.streams.remove(s)
		return
	}
	s.to.over = true
	s.to.signal()
}

// leave separates the stream from its connection, if it has one. The caller holds
// link.mu.
func (s *requestStream) leave(why error) {
	if to := s.to; to != nil {
		s.to, to.cut = nil, why
		to.signal()
	}
}

// note reads the answer to initialize, before the client gets it. Afterwards, an ended
// context does not mean that the client has missed the answer: a client may close its
// connection as soon as it has it.
func (s *requestStream) note(ctx context.Context, frames []transport.Outbound) {
	if !s.initializes {
		return
	}
	for _, o := range frames {
		switch {
		case o.Route.ID != s.id:
		case o.Route.Kind == jsonrpc.KindResult:
			s.established = ctx.Err() == nil
			s.link.negotiated(o.Frame)
		case o.Route.Kind == jsonrpc.KindError:
			s.rejected = true
		}
	}
}

// status returns the status of a response that consists of one frame (2026-07-28
// basic/transports/streamable-http).
func (s *requestStream) status(o *transport.Outbound) int {
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
		if m, err := jsonrpc.Decode(o.Frame, jsonrpc.Limits{}); s.lacksMeta || err == nil && protocol.IsInvalidParams(m.Error, protocol.ReasonMeta) {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// retire ends the use of a connection by the stream. Unless the client can come back, it
// also ends the stream, and what was lost with it. If the client disconnected, that
// cancels a modern request. It does not cancel a request of a session that is being
// served, although nobody can get the answer any more.
func (s *requestStream) retire(to *response, err error) {
	l := s.link
	l.mu.Lock()
	if s.to != to { // the stream continues on another response
		to.queue.drop()
		l.mu.Unlock()
		return
	}
	s.to = nil
	unsent := s.frames.Tags()
	s.frames.drop()
	closing := l.ending != nil
	if err != nil && s.issued && s.cut == nil && !closing {
		if s.over { // all its events are stored
			l.streams.remove(s)
		}
		l.mu.Unlock()
		return
	}
	l.streams.remove(s)
	if closing {
		l.ending.unsent = append(l.ending.unsent, unsent...)
	}
	err = cmp.Or(s.cut, err)
	isLost := err != nil && !s.over
	goesOn := isLost && !l.isShared() && s.cut == nil && s.delivered // unless it still waits
	l.mu.Unlock()
	if closing {
		return
	}
	for _, tag := range unsent {
		l.failed(tag, transport.ErrNoRoute, true)
	}
	if isLost {
		l.told.Tell(func(to transport.Receiver) {
			to.StreamLost(transport.StreamLoss{Stream: s.number, Reason: err, Waiting: goesOn})
		})
	}
}
