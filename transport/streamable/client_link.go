package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// A clientLink is the link of a Client. Each request has a goroutine, and requests run
// concurrently. One goroutine posts all other messages, in order; it exists while there
// are any.
type clientLink struct {
	remote  *remote
	told    parts.Receiver
	limit   int    // the maximum size of a frame, in bytes
	release func() // called when the link has ended

	life   context.Context // ends with the grace of Close
	expire context.CancelFunc
	ctx    context.Context // ends when nothing may be sent or received any more
	cancel context.CancelFunc

	answered  wait.Signal // the server has answered the GET request of Main, or there is none
	olderGone wait.Signal // the loss of older was reported
	left      error       // what Close left behind; set before the ending finishes

	mu        sync.Mutex
	queue     clientQueue
	posting   bool // a goroutine posts messages that are not requests
	listening bool // the GET stream was opened
	sent      uint64
	opened    transport.Stream // the number of the stream that was opened last
	streams   map[transport.Stream]*clientStream
	main      *clientStream
	ending    parts.Ending // its goroutines include those that wait for work
	workers   clientWorkers
	unsent    []*outgoing // messages that were started, but of which no byte was written before the link ended

	older       transport.Link // carries everything after a fallback to HTTP+SSE; nil without one
	olderUnsent []transport.Tag
}

func newClientLink(endpoint *url.URL, client *http.Client, header http.Header, limit int) *clientLink {
	l := &clientLink{
		remote: newRemote(endpoint, client, header), limit: limit, release: func() {},
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

// LinkTraits implements transport.LinkDescriber.
func (l *clientLink) LinkTraits() transport.LinkTraits {
	traits := transport.LinkTraits{RequestPerMessage: true, RecordsReads: true, LastRead: l.remote.heard.Last()}
	older := l.fellBack()
	if older == nil {
		traits.Network = l.remote.network()
		return traits
	}
	now := transport.LinkTraitsOf(older)
	if traits.Network = now.Network; now.LastRead.After(traits.LastRead) {
		traits.LastRead = now.LastRead
	}
	return traits
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
	if o.Route.Kind == jsonrpc.KindRequest { // a request is part of its stream
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
		s.credit.Grant(frames)
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

// Close implements transport.Link. It posts what is queued within 70 % of the
// grace. Then it cancels the requests under way, and deletes a legacy session in
// what is left of the grace.
func (l *clientLink) Close(grace time.Duration) error {
	if grace <= 0 {
		l.expire()
	}
	l.end(transport.ErrClosed)
	var left error
	if older := l.fellBack(); older != nil {
		left = older.Close(grace)
	}
	l.ending.AwaitFinish(grace, l.expire)
	return errors.Join(l.left, left)
}

// endIf ends the link if reason is not nil.
func (l *clientLink) endIf(reason error) {
	if reason != nil {
		l.end(reason)
	}
}

// end begins the end of the link. The first reason counts.
func (l *clientLink) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending.Begin(reason) {
		go l.finish(reason)
	}
	l.check()
}

// finish ends everything that the link owns, and reports the loss.
func (l *clientLink) finish(reason error) {
	defer l.ending.Finish()
	l.ending.AwaitSent()
	if errors.Is(reason, transport.ErrSessionExpired) {
		l.awaitRefusals()
	}
	l.stop()
	l.left = l.endOlder(reason)
	if reason == transport.ErrClosed {
		l.deleteSession()
	}
	if err := l.ending.AwaitIdle(); err != nil {
		l.left = errors.Join(l.left, fmt.Errorf("streamable: %w", err))
	}
	l.expire()
	l.release()
	l.told.Lose(transport.Loss{Reason: reason, Unsent: l.unsentTags()})
}

// refusalPatience is how long the requests of an expired session may take to be refused.
const refusalPatience = 100 * time.Millisecond

// awaitRefusals waits for the responses to the other requests of a session that the server does
// not know any more. They say that the server has not executed these requests.
func (l *clientLink) awaitRefusals() {
	l.mu.Lock()
	l.main.cancel()
	l.workers.dismiss()
	l.check()
	l.mu.Unlock()
	l.ending.AwaitReturn(refusalPatience)
}

// stop cancels what is running, and prevents further requests.
func (l *clientLink) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.Stop()
	l.cancel()
	l.workers.dismiss()
	l.check()
}

// deleteSession tells a legacy server that the client has finished with its session. Its
// failure has no consequences: a server may refuse it.
func (l *clientLink) deleteSession() {
	r := l.remote.newRequest(http.MethodDelete, nil)
	if r.joinSession(); !r.inSession || l.life.Err() != nil {
		return
	}
	if response, err := r.do(l.life); err == nil {
		response.Body.Close()
	}
}

// unsentTags lists the messages that were accepted and not sent, in the order of Send.
func (l *clientLink) unsentTags() (tags []transport.Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent := append(l.unsent, l.queue.waiting...)
	slices.SortFunc(unsent, func(a, b *outgoing) int { return cmp.Compare(a.number, b.number) })
	for _, m := range unsent {
		if m.Tag != 0 && !l.wasEnded(m) {
			tags = append(tags, m.Tag)
		}
	}
	return append(tags, l.olderUnsent...)
}

// check notices that a step of the ending is complete. The caller holds mu.
func (l *clientLink) check() { l.ending.Check(l.queue.frames == 0 && !l.posting) }
