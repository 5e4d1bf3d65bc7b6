package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
)

// fallbackPatience is how long a server may take to show that it speaks HTTP+SSE.
const fallbackPatience = 5 * time.Second

// mayBeOlder reports whether a server that refuses initialize may only support HTTP+SSE
// (2025-11-25 basic/transports, backwards compatibility). A server that answers with a
// JSON-RPC response supports POST.
func (s *clientStream) mayBeOlder(status int, body []byte) bool {
	if !s.initializes || status != http.StatusBadRequest && status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return false
	}
	m, err := jsonrpc.Decode(body, jsonrpc.Limits{})
	return err != nil || m.Kind != jsonrpc.KindResult && m.Kind != jsonrpc.KindError
}

// fallBack finds out whether a server that has refused initialize supports HTTP+SSE. If
// it does, the link uses HTTP+SSE from then on, beginning with initialize. Otherwise
// fallBack returns the error of initialize: the refusal or, if the GET request was
// denied, that denial, because then the server has not shown yet what it supports.
func (s *clientStream) fallBack(initialize *outgoing, refused *transport.StatusError) error {
	l := s.link
	ctx, cancel := context.WithTimeout(s.ctx, fallbackPatience)
	defer cancel()
	older, err := (&sse.Client{URL: l.remote.endpoint.String(), HTTP: l.remote.client, Header: l.remote.header, Authorizer: l.remote.auth, MaxFrame: l.limit}).Open(ctx)
	var status *transport.StatusError
	switch {
	case err == nil:
		return s.speakOlder(older, initialize)
	case errors.As(err, &status) && status.Denied():
		return fmt.Errorf("streamable: %w", err)
	case status != nil && status.Status/100 != 2:
		return refused
	default:
		return fmt.Errorf("%w (and no HTTP+SSE: %s)", refused, err.Error()) // only the refusal decides what happens next
	}
}

// speakOlder switches the link to HTTP+SSE. It first sends the request to initialize,
// and then what is queued. The stream of the request ends: its answer comes on Main.
func (s *clientStream) speakOlder(older transport.Link, initialize *outgoing) error {
	older.Bind(&olderReceiver{s.link})
	if !s.handOver(older, initialize) {
		// Nobody else knows that link.
		return errors.Join(transport.ErrClosed, older.Close(0))
	}
	s.silence()
	s.cancel()
	return nil
}

// handOver does the switch. It reports false if the link, or the request, has ended
// meanwhile.
// All of it happens under Mu: no message of a concurrent Send may come between those that wait, and
// none may be sent on both links.
func (s *clientStream) handOver(older transport.Link, initialize *outgoing) bool {
	l := s.link
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.HasBegun() || s.ctx.Err() != nil {
		return false
	}
	l.older = older
	delete(l.streams, s.number)
	// The older link has only Main, so its frames need the credit of Main.
	older.Grant(transport.Main, l.main.credit.Left())
	waiting, busy := append([]*outgoing{initialize}, l.queue.waiting...), l.queue.busy
	l.queue.waiting, l.queue.busy = nil, false
	for _, m := range waiting {
		l.queue.release(m)
		if err := older.Send(m.Outbound); err != nil && m.Tag != 0 {
			l.Recv.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: m.Tag, Err: err, Unsent: true}) })
		}
	}
	if busy {
		l.Recv.Tell(transport.Receiver.Writable)
	}
	return true
}

// An olderReceiver passes on what a link over HTTP+SSE reports. Such a link has one
// stream.
//
// Its methods run with the lock of that link's receiver held, and Lost takes Mu. So under Mu nothing
// may be called of the older link that tells its receiver something; Send and Grant do not.
type olderReceiver struct{ link *clientLink }

func (r *olderReceiver) Receive(in transport.Inbound) {
	r.link.Recv.Tell(func(to transport.Receiver) { to.Receive(in) })
}

func (r *olderReceiver) Failed(f transport.Failure) {
	r.link.Recv.Tell(func(to transport.Receiver) { to.Failed(f) })
}

func (r *olderReceiver) Writable() { r.link.Recv.Tell(transport.Receiver.Writable) }

func (r *olderReceiver) StreamOpened(transport.Stream, transport.Tag) {}
func (r *olderReceiver) StreamLost(transport.StreamLoss)              {}
func (r *olderReceiver) Ended()                                       {}

func (r *olderReceiver) Lost(loss transport.Loss) {
	l := r.link
	l.Mu.Lock()
	for _, tag := range loss.Unsent {
		l.Abandon(l.sent+1, tag) // in its order, after what this link has taken
	}
	l.Mu.Unlock()
	l.EndFor(loss.Reason)
	l.olderGone.Fire()
}

// fellBack returns the link over HTTP+SSE, or nil if there is none.
func (l *clientLink) fellBack() transport.Link {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.older
}

// endOlder ends the link over HTTP+SSE, if there is one. If Close was called, endOlder
// uses the grace of Close.
func (l *clientLink) endOlder(reason error) error {
	older := l.fellBack()
	if older == nil {
		return nil
	}
	var left error
	if reason != transport.ErrClosed {
		left = older.Close(0)
	}
	// The loss of this link lists what that one has not sent, so it must be known.
	<-l.olderGone.Wait()
	return left
}
