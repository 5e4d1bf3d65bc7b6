package streamable

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// ErrNotReading is the reason of a lost stream whose client reads its response so
// slowly that the stream holds no more frames for it.
var ErrNotReading = errors.New("streamable: the client does not read its response")

// streamFrames is how many frames the stream of a request queues. A client that
// reads never leaves so many, however quickly they are sent.
const streamFrames = 16 << 10

// A requestStream is the stream of one POSTed request. It keeps what the status of
// the response depends on; the request itself goes to the receiver.
type requestStream struct {
	response
	number    transport.Stream
	credit    int       // guarded by link.mu
	frames    sendQueue // guarded by link.mu
	delivered bool      // the receiver has the request

	id          jsonrpc.ID
	lacksMeta   bool // the request lacks what a modern one must have
	initializes bool // it begins the session
	established bool // and was answered with a result
	rejected    bool // or with an error
}

// openStream opens the stream of a request. It reports false if the link is over.
func (l *serverLink) openStream(w http.ResponseWriter, b *body, o *HandlerOptions) (*requestStream, bool) {
	s := &requestStream{
		id:          b.requestID(),
		lacksMeta:   len(b.meta.Version) == 0 || len(b.meta.Capabilities) == 0,
		initializes: !l.isShared() && b.initializes(),
	}
	s.response = newResponse(l, w, o.KeepAlive, &s.frames)
	s.frames.Frames = streamFrames
	l.mu.Lock()
	if l.reason != nil {
		l.mu.Unlock()
		return s, false
	}
	if l.streams == nil {
		l.streams = make(map[transport.Stream]*requestStream)
	}
	l.opened++
	s.number = l.opened
	l.streams[s.number] = s
	l.mu.Unlock()
	l.told.Tell(func(to transport.Receiver) { to.StreamOpened(s.number, 0) })
	return s, true
}

// serve delivers the request and writes the response. It gives the stream up
// whatever happens, also when the ResponseWriter panics.
func (s *requestStream) serve(ctx context.Context, b *body) (err error) {
	err = transport.ErrPeerClosed
	defer func() { err = s.retire(err) }()
	return s.run(ctx, b)
}

// refusal is what becomes of a response that was not completed. One that has begun
// is aborted, so that the client does not take it for complete.
func (s *requestStream) refusal(err error) *refusal {
	switch {
	case s.begun && err == transport.ErrPeerClosed: // nobody is there
		return nil
	case s.begun:
		return &refusal{abort: true}
	case err == errCannotFlush:
		return cannotFlush(s.id)
	case s.delivered: // nothing may say that it was surely not executed
		return unavailable(s.id, "the session has ended before the response came")
	default:
		return s.link.refusal(s.id)
	}
}

func (s *requestStream) run(ctx context.Context, b *body) error {
	if err := s.deliver(ctx, b); err != nil && err != io.EOF {
		return err
	}
	frames, err := s.next(ctx, nil)
	switch {
	case err == io.EOF: // the stream was ended, and nothing was sent on it
		s.begin()
		return nil
	case err != nil:
		return err
	case !frames[0].Last && !s.canFlush():
		s.lost(frames, errCannotFlush)
		return errCannotFlush
	}
	s.note(frames)
	if s.initializes && !s.rejected {
		s.w.Header().Set(headerSession, s.link.session)
	}
	if frames[0].Last {
		return s.json(s.status(frames[0].Route), frames[0])
	}
	s.begin()
	return s.stream(ctx, frames, s.note)
}

// deliver delivers the request for one credit of the stream. Its error is io.EOF
// if the stream was ended first.
func (s *requestStream) deliver(ctx context.Context, b *body) error {
	for {
		granted, err := s.takeCredit()
		if err != nil {
			return err
		}
		if granted {
			in := b.take()
			in.Stream, in.Last = s.number, true
			s.delivered = s.link.told.Tell(func(to transport.Receiver) { to.Receive(in) })
			return nil // if the link was lost just now, next notices
		}
		select {
		case <-s.wake:
		case <-s.link.closing:
		case <-ctx.Done():
			return transport.ErrPeerClosed
		}
	}
}

func (s *requestStream) takeCredit() (granted bool, err error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	switch {
	case s.link.reason != nil:
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

// push queues a frame. It reports false when the stream leads to nobody. The
// stream is never busy, since the clients of a shared link would wait for each
// other: a stream whose client does not read is cut. The last frame always fits.
// The caller holds link.mu.
func (s *requestStream) push(o transport.Outbound) bool {
	if s.over || s.cut != nil {
		return false
	}
	if o.Last {
		s.frames.Frames, s.frames.Bytes = math.MaxInt, math.MaxInt
	}
	if !s.frames.push(o) {
		s.cut = ErrNotReading
		s.interrupt()
		return false
	}
	s.over = o.Last
	s.signal()
	return true
}

// note learns how initialize was answered, before the client does.
func (s *requestStream) note(frames []transport.Outbound) {
	if !s.initializes {
		return
	}
	for _, o := range frames {
		switch {
		case o.Route.ID != s.id:
		case o.Route.Kind == jsonrpc.KindResult:
			s.established = true
			s.link.negotiated(o.Frame)
		case o.Route.Kind == jsonrpc.KindError:
			s.rejected = true
		}
	}
}

// status returns the status of a response that is one frame (MATRIX §6.4).
func (s *requestStream) status(route transport.Route) int {
	if !s.link.isShared() || route.Kind != jsonrpc.KindError {
		return http.StatusOK
	}
	switch route.Code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest,
		protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case jsonrpc.CodeInvalidParams:
		if s.lacksMeta {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// retire gives the stream up and reports what was lost with it. A client that
// leaves a modern request has cancelled it. One that leaves a request of its
// session has not, if the receiver has the request already. retire returns what
// ended the stream: err, unless the stream was cut.
func (s *requestStream) retire(err error) error {
	l := s.link
	l.mu.Lock()
	delete(l.streams, s.number)
	unsent := s.frames.Tags()
	closing := l.reason != nil
	if closing {
		l.unsent = append(l.unsent, unsent...)
	}
	if s.cut != nil {
		err = s.cut
	}
	isLost := err != nil && !s.over && (l.isShared() || s.cut != nil || !s.delivered)
	l.mu.Unlock()
	if closing {
		return err
	}
	for _, tag := range unsent {
		l.failed(tag, transport.ErrNoRoute, true)
	}
	if isLost {
		l.told.Tell(func(to transport.Receiver) { to.StreamLost(transport.StreamLoss{Stream: s.number, Reason: err}) })
	}
	return err
}

// A mainStream is Main of a link: it leads to the GET request that the client of
// the session has opened. The link's mu guards it.
type mainStream struct {
	queue     *sendQueue  // nil while nothing is queued and nobody listens
	listeners []*response // the last one is in use, earlier ones are being cut
}

// listener returns the GET stream in use, or nil.
func (m *mainStream) listener() *response {
	if n := len(m.listeners); n > 0 && m.listeners[n-1].cut == nil {
		return m.listeners[n-1]
	}
	return nil
}

// push queues a frame. The stream can be busy: it has one client.
func (m *mainStream) push(o transport.Outbound) error {
	w := m.listener()
	if w == nil {
		return noRoute(transport.Main)
	}
	if !m.queue.push(o) {
		return transport.ErrBusy
	}
	w.signal()
	return nil
}

// add makes a GET stream the one in use. It cuts the one before, whose client may
// not know yet that its connection is dead. Frames that wait go out on the new one.
func (m *mainStream) add(w *response) {
	if old := m.listener(); old != nil {
		old.cut = io.EOF
		old.signal()
	}
	if m.queue == nil {
		m.queue = new(sendQueue)
	}
	w.queue = m.queue
	m.listeners = append(m.listeners, w)
}

// remove takes a GET stream out. It reports whether Writable is due: the refused
// frame leads to nobody now. Streams that were cut may end in any order.
func (m *mainStream) remove(w *response) (writableDue bool) {
	m.listeners = slices.DeleteFunc(m.listeners, func(other *response) bool { return other == w })
	if m.listener() != nil || m.queue == nil {
		return false
	}
	writableDue = m.queue.writableDue()
	if m.queue.Len() == 0 {
		m.queue = nil
	}
	return writableDue
}

// listen serves a GET request until its stream ends.
func (l *serverLink) listen(w http.ResponseWriter, r *http.Request, o *HandlerOptions) *refusal {
	s := newResponse(l, w, o.KeepAlive, nil)
	if !s.canFlush() {
		return cannotFlush(jsonrpc.ID{})
	}
	l.mu.Lock()
	isOver := l.reason != nil
	if !isOver {
		l.main.add(&s)
	}
	l.mu.Unlock()
	if isOver {
		return l.refusal(jsonrpc.ID{})
	}
	defer l.stopListening(&s)
	s.begin()
	s.stream(r.Context(), nil, func([]transport.Outbound) {}) // nobody hears of its end: Send finds no listener
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
