package streamable

import (
	"context"
	"io"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An answer is the stream of one POSTed request. What its status depends on is
// kept; the request itself is the receiver's.
type answer struct {
	route
	stream transport.Stream
	credit int     // guarded by session.mu
	own    backlog // guarded by session.mu

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
	if !s.open(a) {
		return a, s.refusal(a.id)
	}
	out := &response{ResponseWriter: w, route: &a.route, keepAlive: h.options.KeepAlive}
	err := a.run(r.Context(), out, p)
	s.retire(a, err)
	if err != nil && !out.begun {
		return a, s.refusal(a.id)
	}
	return a, nil
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
	s.to.tell(func(to transport.Receiver) { to.StreamOpened(a.stream, 0) })
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
	}
	a.note(frames)
	if a.initializes && !a.rejected {
		w.Header().Set(headerSession, a.session.id)
	}
	if frames[0].Last {
		return w.json(a.status(frames[0].Frame), frames[0])
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
			frame := p.take()
			a.session.to.tell(func(to transport.Receiver) {
				to.Receive(transport.Inbound{Stream: a.stream, Last: true, Frame: frame})
			})
			return nil
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

// note learns from the answer to initialize.
func (a *answer) note(frames []transport.Outbound) {
	if !a.initializes {
		return
	}
	for _, o := range frames {
		m, err := jsonrpc.Decode(o.Frame, jsonrpc.Limits{})
		if err != nil || m.ID != a.id {
			continue
		}
		switch m.Kind {
		case jsonrpc.KindResult:
			a.established = true
			a.session.negotiated(m.Result)
		case jsonrpc.KindError:
			a.rejected = true
		}
	}
}

func (s *serverSession) negotiated(result []byte) {
	var agreed struct {
		Version string `json:"protocolVersion"`
	}
	takesBatches := protocol.Unmarshal(result, &agreed) == nil && agreed.Version == protocol.Version20250326
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = takesBatches
}

// retire gives the stream up. In a session, a client that has left may still
// want what its request does; without one, it does not.
func (s *serverSession) retire(a *answer, err error) {
	s.mu.Lock()
	delete(s.answers, a.stream)
	unsent, waited := a.own.queue.Tags(), a.own.abandon()
	closing := s.reason != nil || s.forced
	if closing {
		s.unsent = append(s.unsent, unsent...)
	}
	isLost := err != nil && !a.over && !closing
	s.mu.Unlock()
	if closing {
		return
	}
	for _, tag := range unsent {
		s.failed(tag, transport.ErrNoRoute, true)
	}
	if waited {
		s.to.tell(transport.Receiver.Writable)
	}
	if isLost && s.isStateless() {
		s.to.tell(func(to transport.Receiver) { to.StreamLost(transport.StreamLoss{Stream: a.stream, Reason: err}) })
	}
}
