package streamable

import (
	"context"
	"errors"
	"net/http"
	"net/url"
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
// Locks are taken in this order: Mu, then that of remote, of a credit, or of Told. The receiver is told
// of streams under Mu, so that nothing comes on a stream it does not know; it must not call the link
// meanwhile (transport.Receiver). Whoever delivers a frame holds no lock of the link, because the
// receiver may then work on that goroutine, and send.
//
// A stream belongs to the goroutine of its POST or GET until that returns. One that broke off belongs
// to nobody until Resume. The table has a stream from Send until its last frame, its failure or End;
// what happens to it later is reported to nobody.
type clientLink struct {
	parts.Client // its Mu guards the fields from queue on

	remote  *remote
	limit   int    // the maximum size of a frame, in bytes
	release func() // called when the link has ended

	life   context.Context // ends with the grace of Close
	expire context.CancelFunc
	ctx    context.Context // ends when nothing may be sent or received any more
	cancel context.CancelFunc

	answered  wait.Signal // the server has answered the GET request of Main, or there is none
	olderGone wait.Signal // the loss of older was reported

	queue     clientQueue
	posting   bool // a goroutine posts messages that are not requests
	listening bool // the GET stream was opened
	sent      uint64
	opened    transport.Stream // the number of the stream that was opened last
	streams   map[transport.Stream]*clientStream
	main      *clientStream

	older transport.Link // carries everything after a fallback to HTTP+SSE; nil without one
}

func newClientLink(endpoint *url.URL, client *http.Client, header http.Header, limit int) *clientLink {
	l := &clientLink{
		remote: newRemote(endpoint, client, header), limit: limit, release: func() {},
		streams: make(map[transport.Stream]*clientStream),
	}
	l.life, l.expire = context.WithCancel(context.Background())
	l.ctx, l.cancel = context.WithCancel(l.life)
	l.Link = l
	l.main = new(clientStream)
	l.main.init(l, transport.Main)
	return l
}

// LinkTraits implements transport.LinkDescriber.
func (l *clientLink) LinkTraits() transport.LinkTraits {
	traits := transport.LinkTraits{RequestPerMessage: true, RecordsReads: true, LastRead: l.remote.reads.Last()}
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
	l.Mu.Lock()
	defer l.Mu.Unlock()
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
	case l.HasBegun():
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
		l.Run(func() { l.postAll(m) })
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
// The caller holds Mu, so the request cannot be posted before the receiver knows the stream.
func (l *clientLink) open(m *outgoing) {
	l.opened++
	m.stream.init(l, l.opened)
	m.stream.tag, m.stream.id, m.stream.modern = m.Tag, m.Route.ID, m.modern()
	m.stream.initializes = m.Route.Method == protocol.MethodInitialize && !m.modern()
	l.streams[l.opened] = m.stream
	l.Recv.Tell(func(to transport.Receiver) { to.StreamOpened(m.stream.number, m.Tag) })
}

// abandon records a message that ends with the link.
// The loss tells what became of it. Nothing is reported before, since a sender that hears of a failure
// may send again, on a link that is about to end.
func (l *clientLink) abandon(m *outgoing, unsent bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if unsent && !l.wasEnded(m) {
		l.Abandon(m.number, m.Tag)
	}
}

// wasEnded reports whether this side has ended the stream of a request.
// Its sender waits for it no longer. The caller holds Mu.
func (l *clientLink) wasEnded(m *outgoing) bool {
	return m.stream != nil && l.streams[m.stream.number] == nil
}

// Grant implements transport.Link.
func (l *clientLink) Grant(stream transport.Stream, frames int) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.older != nil {
		l.older.Grant(stream, frames)
	} else if s := l.find(stream); s != nil {
		s.credit.Grant(frames)
	}
}

// Resume implements transport.Link.
func (l *clientLink) Resume(stream transport.Stream) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	// broken says that no goroutine has the stream, so that two never read for it.
	if s := l.find(stream); s != nil && s.broken {
		s.broken = false
		l.Run(s.listen)
	}
}

// End implements transport.Link.
func (l *clientLink) End(stream transport.Stream) {
	l.Mu.Lock()
	s := l.streams[stream]
	delete(l.streams, stream)
	if s != nil {
		l.Withdraw(s.sent.number)
	}
	l.Mu.Unlock()
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
	l.Mu.Lock()
	defer l.Mu.Unlock()
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
	l.EndFor(transport.ErrClosed)
	var left error
	if older := l.fellBack(); older != nil {
		left = older.Close(grace)
	}
	return errors.Join(l.Client.Close(grace, l.expire), left)
}

// endIf ends the link if reason is not nil.
func (l *clientLink) endIf(reason error) {
	if reason != nil {
		l.EndFor(reason)
	}
}

// IsEmpty implements parts.Ending.
func (l *clientLink) IsEmpty() bool { return l.queue.frames == 0 && !l.posting }

// refusalPatience is how long the requests of an expired session may take to be refused. A round trip to another continent, or with a machine under
// load, takes less.
const refusalPatience = time.Second

// AwaitAnswers implements parts.Ending. If the server does not know the session any more, the responses to
// its other requests say that the server has not executed these.
func (l *clientLink) AwaitAnswers(reason error) {
	if errors.Is(reason, transport.ErrSessionExpired) {
		l.main.cancel() // the GET stream does not return by itself
		l.AwaitReturn(refusalPatience)
	}
}

// Cancel implements parts.Ending.
func (l *clientLink) Cancel() { l.cancel() }

// EndOthers implements parts.Ending. It ends the link over HTTP+SSE, and the session.
func (l *clientLink) EndOthers(reason error) error {
	left := l.endOlder(reason)
	if reason == transport.ErrClosed {
		l.deleteSession()
	}
	return left
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

// Gone implements parts.Ending. It leaves out requests whose stream was ended.
func (l *clientLink) Gone() {
	l.expire()
	l.release()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, m := range l.queue.waiting {
		if !l.wasEnded(m) {
			l.Abandon(m.number, m.Tag)
		}
	}
}

// Name implements parts.Ending.
func (l *clientLink) Name() string { return "streamable" }
