package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/delivery"
	"github.com/bowline-mcp/bowline/transport/internal/ending"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// postPatience is how long the server may take to accept a message that is not a
// request. The messages after it wait.
const postPatience = 10 * time.Second

// listenPatience is how long the messages after notifications/initialized wait until the
// server has accepted the GET stream of the session.
const listenPatience = time.Second

// A clientLink is the link of a Client. Each request has a goroutine, and requests run
// concurrently. One goroutine posts all other messages, in order; it exists while there
// are any.
type clientLink struct {
	remote  *remote
	told    delivery.Delivery
	limit   int    // bytes of a frame
	release func() // called at the end

	life   context.Context // ends with the grace of Close
	expire context.CancelFunc
	ctx    context.Context // ends when nothing may be sent or received any more
	cancel context.CancelFunc

	answered  *latch.Latch // the server has answered the GET request of Main, or there is none
	olderGone *latch.Latch // the loss of older was reported
	left      error        // what Close left behind; set before the ending finishes

	mu        sync.Mutex
	queue     clientQueue
	posting   bool // a goroutine posts messages that are not requests
	listening bool // the GET stream was opened
	sent      uint64
	opened    transport.Stream // the last one
	streams   map[transport.Stream]*clientStream
	main      *clientStream
	ending    ending.Ending // its goroutines include those that wait for work
	workers   clientWorkers
	unsent    []*outgoing // started, but the link ended before a byte was written

	older       transport.Link // carries everything after a fallback to HTTP+SSE; nil without one
	olderUnsent []transport.Tag
}

func newClientLink(endpoint *url.URL, client *http.Client, header http.Header, limit int) *clientLink {
	l := &clientLink{
		remote: newRemote(endpoint, client, header), limit: limit, release: func() {},
		ending: ending.New(), answered: latch.New(), olderGone: latch.New(),
		streams: make(map[transport.Stream]*clientStream),
	}
	l.life, l.expire = context.WithCancel(context.Background())
	l.ctx, l.cancel = context.WithCancel(l.life)
	l.main = new(clientStream)
	l.main.init(l, transport.Main)
	return l
}

// Bind implements transport.Link.
func (l *clientLink) Bind(to transport.Receiver) { l.told.Bind(to) }

// Requests implements transport.RequestPerMessage.
func (l *clientLink) Requests() bool { return true }

// Heard implements transport.ActivityRecorder.
func (l *clientLink) Heard() (last time.Time, ok bool) {
	last = l.remote.heard.Last()
	if older, ok := l.fellBack().(transport.ActivityRecorder); ok {
		if heard, _ := older.Heard(); heard.After(last) {
			last = heard
		}
	}
	return last, true
}

// Network implements transport.Networked.
func (l *clientLink) Network() transport.Network {
	if older, ok := l.fellBack().(transport.Networked); ok {
		return older.Network()
	}
	return l.remote.network()
}

// Send implements transport.Link. A client has one way to send, the POST, whatever
// stream a request of the server came on.
func (l *clientLink) Send(o transport.Outbound) error {
	if len(o.Frame) > l.limit {
		return &transport.OversizedError{Limit: l.limit, Size: len(o.Frame)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var m *outgoing
	if o.Route.Kind == jsonrpc.KindRequest { // it is part of its stream
		s := new(clientStream)
		m, s.sent.stream = &s.sent, s
	} else {
		m = new(outgoing)
	}
	m.Outbound, m.number = o, l.sent+1
	switch {
	case l.ending.HasBegun():
		return transport.ErrClosed
	case l.older != nil:
		return l.older.Send(o)
	case o.Route.Method == protocol.NotificationCancelled && !l.cancels(o.Route.ID):
		return nil
	case !l.queue.push(m):
		return transport.ErrBusy
	}
	if l.sent++; o.Route.Kind == jsonrpc.KindRequest {
		l.open(m)
	}
	if l.posting {
		return nil
	}
	if m := l.startRequests(); m != nil {
		l.posting = true
		l.run(func() { l.postAll(m) })
	}
	return nil
}

// cancels reports whether the link posts notifications/cancelled for a request. It does
// for legacy requests; ending its stream cancels a modern one.
func (l *clientLink) cancels(id jsonrpc.ID) bool {
	for _, s := range l.streams {
		if s.id == id {
			return !s.modern
		}
	}
	return l.remote.currentSession().begun
}

// open opens the stream of a request.
func (l *clientLink) open(m *outgoing) {
	l.opened++
	m.stream.init(l, l.opened)
	m.stream.tag, m.stream.id, m.stream.modern = m.Tag, m.Route.ID, m.modern()
	m.stream.initializes = m.Route.Method == protocol.MethodInitialize && !m.modern()
	l.streams[l.opened] = m.stream
	l.told.Tell(func(to transport.Receiver) { to.StreamOpened(m.stream.number, m.Tag) })
}

// startRequests starts the requests at the head of the queue. It returns the first
// message after them that is not a request, or nil if there is none.
func (l *clientLink) startRequests() *outgoing {
	for !l.ending.IsStopped() && l.ctx.Err() == nil {
		m := l.queue.pop()
		switch {
		case m == nil:
			return nil
		case m.stream == nil:
			l.written(m)
			return m
		case m.stream.ctx.Err() != nil:
			l.written(m) // its stream was ended before it was sent
		default:
			l.run(m.stream.post)
		}
	}
	return nil
}

// written releases the room of a message in the queue.
func (l *clientLink) written(m *outgoing) {
	if l.queue.release(m) {
		l.told.Tell(transport.Receiver.Writable)
	}
	l.check()
}

// postAll posts messages that are not requests, each after the server has accepted or
// refused the one before, until none is queued.
func (l *clientLink) postAll(m *outgoing) {
	for m != nil {
		l.post(m)
		l.mu.Lock()
		if m = l.startRequests(); m == nil {
			l.posting = false
			l.check()
		}
		l.mu.Unlock()
	}
}

func (l *clientLink) post(m *outgoing) {
	ctx, cancel := context.WithTimeout(l.ctx, postPatience)
	defer cancel()
	r := l.remote.newPost(ctx, m)
	response, err := r.do(ctx)
	unsent := r.unsent()
	if err == nil {
		unsent = web.IsRefusal(response)
		err = accepted(response)
	}
	var refused *transport.StatusError
	if errors.As(err, &refused) {
		r.countRefused(refused)
	}
	switch {
	case err == nil && m.Route.Method == protocol.NotificationInitialized:
		l.listen()
		l.awaitListening()
	case err == nil, m.Tag == 0: // nobody asks after it
	case l.ctx.Err() != nil, r.fatal != nil:
		l.abandon(m, unsent)
	default:
		err = fmt.Errorf("streamable: post %s: %w", m.label(), err)
		l.told.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: m.Tag, Err: err, Unsent: unsent}) })
	}
	l.endIf(r.fatal)
}

// accepted reads the response to a message that is not a request.
func accepted(response *http.Response) error {
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return web.NewStatusError(response, web.Excerpt(response))
	}
	io.CopyN(io.Discard, response.Body, web.MaxErrorBody) // only so that the connection can be reused
	return nil
}

// listen opens the GET stream of a session, once. It does not wait until the stream is
// open.
func (l *clientLink) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.remote.currentSession().begun:
		l.answered.Raise() // there is no such stream
	case !l.listening:
		l.listening = true
		l.run(l.main.listen)
	}
}

// awaitListening waits until the server has answered the GET request, for at most
// listenPatience. There are two reasons. If the stream is not open yet, messages are
// lost that the server sends on it because of a later message. And some servers mistake
// a GET request during a call for one that resumes the call's stream.
func (l *clientLink) awaitListening() {
	ctx, cancel := context.WithTimeout(l.ctx, listenPatience)
	defer cancel()
	select {
	case <-l.answered.Raised:
	case <-ctx.Done():
	}
}

// abandon records a message that ends with the link.
func (l *clientLink) abandon(m *outgoing, unsent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unsent && !l.wasEnded(m) {
		l.unsent = append(l.unsent, m)
	}
}

// wasEnded reports whether this side has ended the stream of a request.
func (l *clientLink) wasEnded(m *outgoing) bool {
	return m.stream != nil && l.streams[m.stream.number] == nil
}

// Grant implements transport.Link.
func (l *clientLink) Grant(stream transport.Stream, frames int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.older != nil {
		l.older.Grant(stream, frames)
	} else if s := l.find(stream); s != nil {
		s.grant(frames)
	}
}

// Resume implements transport.Link.
func (l *clientLink) Resume(stream transport.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.find(stream); s != nil && s.broken {
		s.broken = false
		l.run(s.listen)
	}
}

// End implements transport.Link.
func (l *clientLink) End(stream transport.Stream) {
	l.mu.Lock()
	s := l.streams[stream]
	delete(l.streams, stream)
	l.mu.Unlock()
	if s != nil {
		s.silence()
		s.cancel()
	}
}

// find returns a stream that has not ended, or nil.
func (l *clientLink) find(stream transport.Stream) *clientStream {
	if stream == transport.Main {
		return l.main
	}
	return l.streams[stream]
}

// drop removes a stream from the table. Its HTTP request may continue.
func (l *clientLink) drop(s *clientStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, s.number)
}
