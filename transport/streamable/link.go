package streamable

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/heard"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A clientLink is the link of a Client. Requests run side by side, each in a
// goroutine; what is no request is posted by one goroutine, in order, which
// lives while there is something to post.
type clientLink struct {
	linkDelivery
	in       heard.Counter
	endpoint *url.URL
	http     *http.Client
	header   http.Header
	limit    int
	release  func() // what the connections of this link's Client need at its end

	life   context.Context // until the grace of Close has passed
	expire context.CancelFunc
	ctx    context.Context // until nothing is exchanged any more
	cancel context.CancelFunc

	forced  *latch.Latch // what is queued has had its time
	flushed *latch.Latch // nothing is queued, after ending
	idle    *latch.Latch // no goroutine runs, after over
	gone    *latch.Latch // the link is lost, and was told so
	left    error        // what Close left behind; set before gone

	mu        sync.Mutex
	out       outbox
	posting   bool // a goroutine posts what is no request
	sent      uint64
	exchanges map[transport.Stream]*exchange
	opened    transport.Stream // the last one
	main      *exchange
	session   session     // once the server has answered initialize
	misses    int         // failed dials since anything was received
	disowned  int         // refusals that name no message since anything was accepted
	running   int         // goroutines
	ending    bool        // nothing more is accepted
	over      bool        // nothing more is started
	unsent    []*outgoing // started, and ended with the link before a byte was written
}

// A session is what a legacy server has said in its answer to initialize.
type session struct {
	begun   bool
	id      string // empty when the server keeps none
	version string
	listens bool // Main was opened
}

func newClientLink(endpoint *url.URL, client *http.Client, header http.Header, limit int) *clientLink {
	l := &clientLink{
		endpoint: endpoint, http: client, header: header, limit: limit,
		forced: latch.New(), flushed: latch.New(), idle: latch.New(), gone: latch.New(),
		exchanges: make(map[transport.Stream]*exchange), release: func() {},
	}
	l.life, l.expire = context.WithCancel(context.Background())
	l.ctx, l.cancel = context.WithCancel(l.life)
	l.main = &exchange{lane: newLane(l.ctx, transport.Main), link: l}
	return l
}

// Heard implements transport.Hearing.
func (l *clientLink) Heard() (bytes uint64, ok bool) { return l.in.Bytes(), true }

// Send implements transport.Link. On this side there is one way to send, a POST,
// whatever stream a question came on.
func (l *clientLink) Send(o transport.Outbound) error {
	if len(o.Frame) > l.limit {
		return &transport.OversizedError{Limit: l.limit, Size: len(o.Frame)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ending:
		return transport.ErrClosed
	case o.Route.Method == protocol.NotificationCancelled && !l.cancels(o.Route.ID):
		return nil
	case !l.out.fits(len(o.Frame)):
		l.out.refuse(len(o.Frame))
		return transport.ErrBusy
	}
	l.accept(&outgoing{Outbound: o})
	return nil
}

// cancels reports whether notifications/cancelled is to be posted: for legacy
// requests. The end of its stream cancels a modern one.
func (l *clientLink) cancels(id jsonrpc.ID) bool {
	for _, x := range l.exchanges {
		if x.id == id {
			return !x.modern
		}
	}
	return l.session.begun
}

func (l *clientLink) accept(o *outgoing) {
	l.sent++
	if o.number = l.sent; o.Route.Kind == jsonrpc.KindRequest {
		l.opened++
		o.exchange = newExchange(l, l.opened, o)
		l.exchanges[l.opened] = o.exchange
		l.Tell(func(to transport.Receiver) { to.StreamOpened(o.exchange.stream, o.Tag) })
	}
	l.out.push(o)
	if l.posting {
		return
	}
	if o := l.advance(); o != nil {
		l.posting = true
		l.run(func() { l.postAll(o) })
	}
}

// advance starts the requests that are next, and returns what is next and no
// request.
func (l *clientLink) advance() *outgoing {
	for !l.over && l.ctx.Err() == nil {
		o := l.out.pop()
		switch {
		case o == nil:
			return nil
		case o.exchange == nil:
			l.letGo(o)
			return o
		case o.exchange.ctx.Err() != nil:
			l.letGo(o) // it was ended before it was sent
		default:
			l.run(func() { o.exchange.post(o) })
		}
	}
	return nil
}

// letGo makes the room of a frame free.
func (l *clientLink) letGo(o *outgoing) {
	if l.out.release(o) {
		l.Tell(transport.Receiver.Writable)
	}
	l.check()
}

// Grant implements transport.Link.
func (l *clientLink) Grant(stream transport.Stream, frames int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.find(stream); x != nil {
		x.grant(frames)
	}
}

// Resume implements transport.Link.
func (l *clientLink) Resume(stream transport.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.find(stream); x != nil && x.broken {
		x.broken = false
		l.run(x.listen)
	}
}

// End implements transport.Link.
func (l *clientLink) End(stream transport.Stream) {
	l.mu.Lock()
	x := l.exchanges[stream]
	delete(l.exchanges, stream)
	l.mu.Unlock()
	if x != nil {
		l.hush(x.lane)
		x.cancel()
	}
}

// find returns a stream that is not over.
func (l *clientLink) find(stream transport.Stream) *exchange {
	if stream == transport.Main {
		return l.main
	}
	return l.exchanges[stream]
}

// drop takes a stream out of the table. Its HTTP request may go on.
func (l *clientLink) drop(x *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.exchanges, x.stream)
}

// forget ends a stream of which everything was told.
func (l *clientLink) forget(x *exchange) {
	l.drop(x)
	x.cancel()
}
