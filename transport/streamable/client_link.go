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

// How a message passes through the link of a client, and where to look:
//
//	client_link.go      Send, the streams of requests, and the end of the link
//	client_queue.go     messages that are not written yet
//	client_sending.go   which message is posted when, and the goroutines that do it
//	remote.go           the session, and the headers that its requests have
//	client_exchange.go  one HTTP request: its attempts, and what its failure says about the server
//	client_stream.go    the response to a request, the GET stream, and how both are resumed
//	client_fallback.go  a server that speaks HTTP+SSE only

// A clientLink is the link of a Client. Each request has a goroutine, and requests run
// concurrently. One goroutine posts all other messages, in order; it exists while there
// are any.
//
// Locks are taken in this order: mu, then that of remote, of a credit, or of told. The receiver is told
// of streams under mu, so that nothing comes on a stream it does not know; it must not call the link
// meanwhile (transport.Receiver). Whoever delivers a frame holds no lock of the link, because the
// receiver may then work on that goroutine, and send.
//
// A stream belongs to the goroutine of its POST or GET until that returns. One that broke off belongs
// to nobody until Resume. The table has a stream from Send until its last frame, its failure or End;
// what happens to it later is reported to nobody.
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
	// The number counts only if the message is accepted. By it the loss lists what was not sent in the
	// order of Send, although requests fail in any order.
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
	// The goroutine that posts starts the requests behind its message. They must not overtake it: what
	// a notification says may matter to them.
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
// The caller holds mu, so the request cannot be posted before the receiver knows the stream.
func (l *clientLink) open(m *outgoing) {
	l.opened++
	m.stream.init(l, l.opened)
	m.stream.tag, m.stream.id, m.stream.modern = m.Tag, m.Route.ID, m.modern()
	m.stream.initializes = m.Route.Method == protocol.MethodInitialize && !m.modern()
	l.streams[l.opened] = m.stream
	l.told.Tell(func(to transport.Receiver) { to.StreamOpened(m.stream.number, m.Tag) })
}

// abandon records a message that ends with the link.
// The loss tells what became of it. Nothing is reported before, since a sender that hears of a failure
// may send again, on a link that is about to end.
func (l *clientLink) abandon(m *outgoing, unsent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unsent && !l.wasEnded(m) {
		l.unsent = append(l.unsent, m)
	}
}

// wasEnded reports whether this side has ended the stream of a request.
// Its sender waits for it no longer. The caller holds mu.
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
	// broken says that no goroutine has the stream, so that two never read for it.
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
		// To cancel alone would be too late for a report that has begun: after End the receiver must
		// hear nothing of the stream.
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
	// Without a grace the session is not deleted either, because that takes a round trip.
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
// The goroutine of finish is none of those that it waits for, because each of them may be the caller.
func (l *clientLink) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending.Begin(reason) {
		go l.finish(reason)
	}
	l.check()
}

// finish ends everything that the link owns, and reports the loss.
// It takes the steps of the ending in their order. The loss comes last: nothing may be told after it,
// and what was not sent is known only when the requests have returned.
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
	// Neither the GET stream nor idle goroutines return by themselves.
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
	// ctx has ended by now. This is the only request that may still be sent, so it has the life of the
	// link.
	if response, err := r.do(l.life); err == nil {
		response.Body.Close()
	}
}

// unsentTags lists the messages that were accepted and not sent, in the order of Send.
// It leaves out requests whose stream was ended.
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
