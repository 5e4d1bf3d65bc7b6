package streamable

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// ErrNotReading is the reason of a stream whose client has fallen so far behind
// with reading its answer that no more frames are held for it.
var ErrNotReading = errors.New("streamable: the client does not read its answer")

// errCannotFlush is a program's mistake: a wrapper that hides http.Flusher.
var errCannotFlush = errors.New("streamable: the ResponseWriter cannot flush, which a stream of events needs")

// answerFrames is how many frames an answer queues. It is far more than one who
// reads leaves there, however quickly they are sent.
const answerFrames = 16 << 10

// An answer is the stream of one POSTed request. What its status depends on is
// kept; the request itself is the receiver's.
type answer struct {
	route
	stream    transport.Stream
	credit    int     // guarded by session.mu
	own       backlog // guarded by session.mu
	delivered bool    // the receiver has the request

	id          jsonrpc.ID
	lacksMeta   bool // what a modern request has to say of itself
	initializes bool // it begins the session
	established bool // and was answered with a result
	rejected    bool // or with an error
}

// answer has a request answered on a stream of its own.
func (h *Handler) answer(s *serverSession, w http.ResponseWriter, r *http.Request, p *posted) (*answer, *refusal) {
	a := &answer{
		route:       newRoute(s, w, nil),
		id:          p.requestID(),
		lacksMeta:   len(p.meta.Version) == 0 || len(p.meta.Capabilities) == 0,
		initializes: !s.isStateless() && p.initializes(),
	}
	a.box = &a.own
	a.own.queue.Frames = answerFrames
	if !s.open(a) {
		return a, s.refusal(a.id)
	}
	out := &response{ResponseWriter: w, route: &a.route, keepAlive: h.options.KeepAlive}
	if err := a.serve(r.Context(), out, p); err != nil && !out.begun {
		return a, a.refusal(err)
	}
	return a, nil
}

// refusal is what a request hears whose answer has not begun. Once it is the
// receiver's, nothing may say that it was surely not executed.
func (a *answer) refusal(err error) *refusal {
	switch {
	case err == errCannotFlush:
		return cannotFlush(a.id)
	case a.delivered:
		return unavailable(a.id, "the session has ended before the answer came")
	default:
		return a.session.refusal(a.id)
	}
}

// serve gives the stream up whatever happens, a panic of the ResponseWriter
// included.
func (a *answer) serve(ctx context.Context, w *response, p *posted) (err error) {
	err = transport.ErrPeerClosed
	defer func() { a.session.retire(a, err) }()
	return a.run(ctx, w, p)
}

// open draws a number for the stream, unless the session is closing.
func (s *serverSession) open(a *answer) bool {
	s.mu.Lock()
	if s.reason != nil {
		s.mu.Unlock()
		return false
	}
	if s.answers == nil {
		s.answers = make(map[transport.Stream]*answer)
	}
	s.drawn++
	a.stream = s.drawn
	s.answers[a.stream] = a
	s.mu.Unlock()
	s.to.Tell(func(to transport.Receiver) { to.StreamOpened(a.stream, 0) })
	return true
}

// run delivers the request, and writes what is sent for it.
func (a *answer) run(ctx context.Context, w *response, p *posted) error {
	if err := a.deliver(ctx, p); err != nil && err != io.EOF {
		return err
	}
	frames, err := a.next(ctx, nil)
	switch {
	case err == io.EOF: // End, and nothing was sent
		w.begin()
		return nil
	case err != nil:
		return err
	case !frames[0].Last && !canFlush(w.ResponseWriter):
		w.route.lost(frames, errCannotFlush)
		return errCannotFlush
	}
	a.note(frames)
	if a.initializes && !a.rejected {
		w.Header().Set(headerSession, a.session.id)
	}
	if frames[0].Last {
		return w.json(a.status(frames[0].Route), frames[0])
	}
	w.begin()
	return w.stream(ctx, frames, a.note)
}

// deliver hands the request to the receiver against the credit of the stream,
// unless the stream was ended before.
func (a *answer) deliver(ctx context.Context, p *posted) error {
	for {
		granted, err := a.takeCredit()
		switch {
		case granted:
			in := p.take()
			in.Stream, in.Last = a.stream, true
			a.delivered = a.session.to.Tell(func(to transport.Receiver) { to.Receive(in) })
			return nil // what was lost in between is found when the answer is waited for
		case err != nil:
			return err
		}
		select {
		case <-a.wake:
		case <-a.session.closing:
		case <-ctx.Done():
			return transport.ErrPeerClosed
		}
	}
}

func (a *answer) takeCredit() (granted bool, err error) {
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	switch {
	case a.session.reason != nil || a.session.forced:
		return false, transport.ErrClosed
	case a.over:
		return false, io.EOF
	case a.credit > 0:
		a.credit--
		return true, nil
	default:
		return false, nil
	}
}

// push queues a frame, or reports false when the stream leads to nobody. It is
// never busy: a client that does not read must not hold up those it shares the
// link with, so the stream is cut instead. The last frame always fits. It is
// called with session.mu held.
func (a *answer) push(o transport.Outbound) bool {
	if a.over || a.cut != nil {
		return false
	}
	if o.Last {
		a.own.queue.Frames, a.own.queue.Bytes = math.MaxInt, math.MaxInt
	}
	if !a.own.queue.Push(o) {
		a.cut = ErrNotReading
		a.interrupt()
		return false
	}
	a.over = o.Last
	a.signal()
	return true
}

// note learns from the answer to initialize.
func (a *answer) note(frames []transport.Outbound) {
	if !a.initializes {
		return
	}
	for _, o := range frames {
		if o.Route.ID != a.id {
			continue
		}
		switch o.Route.Kind {
		case jsonrpc.KindResult:
			a.established = true
			a.session.negotiated(o.Frame)
		case jsonrpc.KindError:
			a.rejected = true
		}
	}
}

// negotiated reads the answer to initialize, in the goroutine of its request.
func (s *serverSession) negotiated(answer []byte) {
	var agreed struct {
		Version string `json:"protocolVersion"`
	}
	m, err := jsonrpc.Decode(answer, jsonrpc.Limits{})
	takesBatches := err == nil && decode(m.Result, &agreed) && agreed.Version == protocol.Version20250326
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = takesBatches
}

// retire gives the stream up. In a session, a client that has left may still
// want what its request does, if that has begun; without one, it does not.
func (s *serverSession) retire(a *answer, err error) {
	s.mu.Lock()
	delete(s.answers, a.stream)
	unsent := a.own.queue.Tags()
	closing := s.reason != nil || s.forced
	if closing {
		s.unsent = append(s.unsent, unsent...)
	}
	reason := err
	if a.cut != nil {
		reason = a.cut
	}
	isLost := err != nil && !a.over && (s.isStateless() || a.cut != nil || !a.delivered)
	s.mu.Unlock()
	if closing {
		return
	}
	for _, tag := range unsent {
		s.failed(tag, transport.ErrNoRoute, true)
	}
	if isLost {
		s.to.Tell(func(to transport.Receiver) { to.StreamLost(transport.StreamLoss{Stream: a.stream, Reason: reason}) })
	}
}
