package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// What a link of a server consists of, and where to look:
//
//	server_link.go         sending, delivering, and the end
//	exchange.go            a request and what its response becomes; exchange_states.go has the table
//	server_main_stream.go  the GET stream
//	server_queue.go        frames that wait to be written, and what they count for their client
//	server_response.go     writing them
//	server_numbering.go    the ids of events, and replaying those that are stored
//	server_resume.go       a client that comes back for a response

// A serverLink is the link of one session, or of one client's messages without a
// session. It has no goroutine: net/http's goroutines deliver what they read, and write
// what Send has queued.
//
// Locks are taken in this order: table.mu or link.mu, never both; then those of the pools and of
// the event store, which are held for moments. No write to a
// client, no call of the receiver (told) and no Save happens under link.mu: the receiver may send at
// once, from the same goroutine.
//
// Ending is final and has one reason, the first. After beginEnd nothing is accepted any more, what
// is queued is written while the grace lasts, force cuts the rest off, and Lose is told last: when
// no request uses the link, or when those that do will not end. The loss of a stream is not told
// meanwhile, because the loss of the link says the same.
type serverLink struct {
	*common
	session string // the session id; empty for a shared link
	key     clientKey
	http    string        // the version of HTTP of the request that opened it
	size    int32         // bytes of the initialize
	use     use           // guarded by table.mu
	saved   *savedSession // nil: the session is not stored

	stateless bool        // it serves one request, and its client has no session id
	forced    bool        // nothing more is written; guarded by mu
	isEnding  atomic.Bool // ending is not nil
	recv      parts.Receiver
	credit    budget // of Main

	mu      sync.Mutex
	version string           // the revision of the session; empty until it is negotiated
	opened  transport.Stream // the number of the stream that was opened last
	streams exchanges
	seldom  *seldom       // nil until it is needed
	main    *mainStream   // nil before the first listener or stored event
	since   time.Time     // when the listener in use came, else when the last one left or the session began; zero if none can come
	ending  *serverEnding // nil until the link starts to end
}

// seldom is what most links never need.
type seldom struct {
	replays map[transport.Stream]*response // responses that replay streams which have ended
	closing chan struct{}                  // closed when the link starts to end; nil until somebody waits for it
}

// A serverEnding is the end of a serverLink.
type serverEnding struct {
	reason error           // why the link is over
	unsent []transport.Tag // that are in no queue any more; guarded by the link's mu
	gone   chan struct{}   // closed when everything has ended
	left   error           // what has not ended; set before gone is closed
}

// common contains what all links of a handler share.
type common struct {
	maxFrame int // in bytes
	jsonOnly bool
	events   EventStore
	unread   *web.Unread
	served   *served
	turns    *turn.Scheduler[share.Client]
	listed   linkTable
	alarms   alarms
}

// A linkTable is where a handler finds its links. A link tells it when it ends. It must not be called with the mu of a link.
type linkTable interface {
	// remove removes a link that ends for a reason. It returns a channel that is closed when no request uses the link.
	remove(l *serverLink, reason error) (unused <-chan struct{})

	// drains reports whether the handler shuts down.
	drains() bool
}

// A storedLink is the link of a session that is stored. Other links are no Keepers, so that their
// servers keep nothing.
type storedLink struct{ *serverLink }

// Keep implements transport.Keeper.
func (l storedLink) Keep(state []byte) { l.saved.keep(state) }

// Kept implements transport.Keeper.
func (l storedLink) Kept() (state []byte, continues bool) { return l.saved.kept, l.saved.continues }

// accept passes the link to its acceptor.
func (l *serverLink) accept() {
	if l.saved == nil {
		l.key.acceptor.Accept(l)
	} else {
		l.key.acceptor.Accept(storedLink{l})
	}
}

func (l *serverLink) isShared() bool { return l.session == "" }

// Bind implements transport.Link.
func (l *serverLink) Bind(to transport.Receiver) { l.recv.Bind(to) }

// LinkTraits implements transport.LinkDescriber.
func (l *serverLink) LinkTraits() transport.LinkTraits {
	network := transport.Network{HTTP: l.http, Session: l.session}
	if l.stateless { // the client knows of no session
		network.Session = ""
	}
	return transport.LinkTraits{Network: network}
}

// Send implements transport.Link.
func (l *serverLink) Send(o transport.Outbound) error {
	if len(o.Frame) > l.maxFrame {
		return &transport.OversizedError{Limit: l.maxFrame, Size: len(o.Frame)}
	}
	if o.Stream == transport.Main {
		return l.sendMain(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != nil {
		return transport.ErrClosed
	}
	s := l.streams.find(o.Stream)
	if s == nil {
		return noRoute(o.Stream)
	}
	return s.push(o)
}

func noRoute(stream transport.Stream) error {
	return fmt.Errorf("streamable: send on stream %d: %w", stream, transport.ErrNoRoute)
}

// Grant implements transport.Link.
func (l *serverLink) Grant(stream transport.Stream, frames int) {
	if stream == transport.Main {
		l.credit.give(frames)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams.find(stream); s != nil {
		// The goroutine of the request may be waiting for it.
		if s.credit += frames; s.to != nil {
			s.to.signal()
		}
	}
}

// Resume implements transport.Link. A server's streams cannot be resumed.
func (l *serverLink) Resume(transport.Stream) {}

// End implements transport.Link.
func (l *serverLink) End(stream transport.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams.find(stream); s != nil {
		s.end()
	}
}

// deliver delivers a message that is not a request, for one credit of Main.
func (l *serverLink) deliver(ctx context.Context, w http.ResponseWriter, b *body) *refusal {
	ctx, cancel := context.WithTimeout(ctx, roomPatience)
	defer cancel()
	if c := l.credit.claim(1); c != nil && !l.credit.wait(ctx, l.untilClosing(), c) {
		if ctx.Err() != nil && !l.isEnding.Load() {
			return overloaded(jsonrpc.ID{}, "the messages before it are not taken")
		}
		return l.refusal(jsonrpc.ID{})
	}
	in := b.take()
	if !l.recv.Tell(func(to transport.Receiver) { to.Receive(in) }) {
		b.putBack(in)
		return l.refusal(jsonrpc.ID{})
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// refusal is the response to a request that the link did not accept.
func (l *serverLink) refusal(id jsonrpc.ID) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ending == nil || l.ending.reason == transport.ErrClosed:
		return shuttingDown(id)
	case l.ending.reason == transport.ErrSessionMoved:
		return moving(id)
	default:
		return sessionNotFound(id)
	}
}

// negotiated reads the revision of the session from the response to initialize.
func (l *serverLink) negotiated(response []byte) {
	var result struct {
		Version string `json:"protocolVersion"`
	}
	m, err := jsonrpc.Decode(response, jsonrpc.Limits{})
	if err != nil || !decode(m.Result, &result) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = result.Version
}

// negotiatedVersion returns "" until the revision is negotiated.
func (l *serverLink) negotiatedVersion() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

func (l *serverLink) takesBatches() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return revision.Has(l.version, revision.Batches)
}

func (l *serverLink) failed(tag transport.Tag, err error, unsent bool) {
	l.recv.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: tag, Err: err, Unsent: unsent}) })
}

// Close implements transport.Link. What is queued for open
// responses is written within 70 % of the grace. A request without any response
// is answered with 503.
func (l *serverLink) Close(grace time.Duration) error { return l.end(transport.ErrClosed, grace) }

// end ends the link. The first reason counts.
func (l *serverLink) end(reason error, grace time.Duration) error {
	ending, first := l.beginEnd(reason)
	if !first {
		web.EndWithin(ending.gone, grace, l.force)
		<-ending.gone
		return ending.left
	}
	// No request finds the link from here on. Those that use it have the grace to write what is queued.
	if !web.EndWithin(l.listed.remove(l, reason), grace, l.force) {
		ending.left = errors.New("streamable: an HTTP request has not ended")
	}
	// Before the loss is told: who hears of it may look for the session elsewhere.
	if goesOn := l.goesOn(reason); !goesOn && !l.isShared() {
		l.saved.end(false)
		l.events.Forget(l.session)
	} else {
		l.saved.end(true)
	}
	l.recv.Lose(transport.Loss{Reason: reason, Unsent: l.collectUnsent()})
	close(ending.gone)
	return ending.left
}

// goesOn reports whether the session of a link that ends for a reason goes on in another
// process.
func (l *serverLink) goesOn(reason error) bool {
	return l.saved != nil && (reason == transport.ErrSessionMoved || reason == transport.ErrClosed && (l.listed.drains() || l.saved.isTaken()))
}

func (l *serverLink) beginEnd(reason error) (_ *serverEnding, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != nil {
		return l.ending, false
	}
	l.ending = &serverEnding{reason: reason, gone: make(chan struct{})}
	l.isEnding.Store(true)
	if l.seldom != nil && l.seldom.closing != nil {
		close(l.seldom.closing)
	}
	// Each sees that the link is ending, writes what is queued, and returns.
	l.eachResponse((*response).signal)
	return l.ending, true
}

// untilClosing returns a channel that is closed when the link starts to end.
func (l *serverLink) untilClosing() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	rare := l.rare()
	if rare.closing == nil {
		rare.closing = make(chan struct{})
		if l.ending != nil {
			close(rare.closing)
		}
	}
	return rare.closing
}

// rare returns what is seldom needed. The caller holds mu.
func (l *serverLink) rare() *seldom {
	if l.seldom == nil {
		l.seldom = new(seldom)
	}
	return l.seldom
}

// eachResponse calls do for all responses that wait for frames. The caller holds mu.
func (l *serverLink) eachResponse(do func(*response)) {
	for _, s := range l.streams {
		if s.to != nil {
			do(s.to)
		}
	}
	if l.seldom != nil {
		for _, w := range l.seldom.replays {
			do(w)
		}
	}
	if l.main != nil {
		for _, w := range l.main.listeners {
			do(w)
		}
	}
}

// force interrupts all writes.
// It is final: what begins to write later fails as well.
func (l *serverLink) force() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forced = true
	l.eachResponse((*response).interrupt)
}

// addUnsent adds a frame to the loss. Only a write that the end has refused calls it, so ending is set.
func (l *serverLink) addUnsent(tag transport.Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.unsent = append(l.ending.unsent, tag)
}

// collectUnsent lists the frames that were not written, and never will be.
// It is called when no more is written, so nothing of it can still leave.
func (l *serverLink) collectUnsent() []transport.Tag {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent := l.ending.unsent // taken out of the queues, so older than the queued frames
	if l.main != nil && l.main.queue != nil {
		unsent = append(unsent, l.main.queue.Tags()...)
	}
	for _, s := range l.streams {
		unsent = append(unsent, s.frames.Tags()...)
	}
	return unsent
}

// A clientKey identifies a client of an acceptor.
type clientKey struct {
	acceptor transport.Acceptor
	share.Client
}

// A use is what the table knows about a link. The table's mu guards it.
type use struct {
	requests  int32         // HTTP requests that use the link now
	accepted  bool          // the acceptor bound it, so requests may use it
	confirmed bool          // the client has used the session id that it got
	removed   bool          // no further request may use it
	idle      bool          // no request uses it, and it is in the lists of idle links
	unused    chan struct{} // closed when no request uses the removed link; created by remove
	since     time.Time     // when it became idle
	places    [2]idlePlace  // in these lists: of the table, and of the client
}

// An idlePlace is the place of a link in an idleList: between its neighbours.
type idlePlace struct{ before, after *serverLink }
