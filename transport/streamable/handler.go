package streamable

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A Handler is an http.Handler that serves one MCP endpoint over Streamable HTTP,
// in every revision. It is safe for concurrent use.
//
// Each session is one link, which outlives the connections of its client. The link
// is lost with ErrPeerClosed after a DELETE. It is lost with ErrSessionExpired after
// SessionIdle, and when the session makes room for a new one. Close ends it, too. With
// Sessions, a session can have another link in another process; a link is lost with
// ErrSessionMoved when another node has taken its session.
//
// Messages without a session share one link per client, so one client cannot use up
// the limits of another. A client is an identity or, if anonymous, an IPv4 address or
// the /64 network of an IPv6 address. Clients behind one proxy need an identity
// (Identify), or a proxy that is trusted (TrustedProxies), to count separately. If a client disconnects before the answer, the
// stream of its request is lost with ErrPeerClosed.
//
// The Acceptor given to NewHandler learns what the handler refuses, if it is a
// transport.Auditor, also if Choose is set. What is forwarded to another node is the
// business of that node.
//
// Each message carries a transport.Origin: the address, headers and TLS state of
// the HTTP request that brought it. A server's handler sees the values of that
// request's context in its own context. Authenticate in ordinary middleware.
//
// A link has no goroutine, and that of an idle session uses half a kilobyte. The
// goroutines of net/http write the responses. The handler disconnects a client that
// reads less than 64 KiB of its response in 30 s. It also disconnects a client that,
// after the first 30 s, sends its body more slowly than 64 KiB/s, or sends nothing of
// the next 64 KiB for 10 s. The timeouts of http.Server apply as well.
//
// If there is no room for a request, it is not executed. The response is 503, with
// Retry-After and jsonrpc.CodeOverloaded.
//
// The handler numbers and stores the events of sessions (HandlerOptions.EventStore).
// A client whose connection breaks comes back for what it missed (ADR-0033).
//
// The GET stream of a session queues at most 256 frames and 16 MiB. One frame always
// fits. If the queue is full, Send returns transport.ErrBusy. The response to a
// request queues at most 16,384 frames and 16 MiB; the last frame always fits. If
// that queue is full, the stream is lost with ErrNotReading and the response is
// aborted. MaxUnread limits all queues together.
//
// Event streams need a ResponseWriter that can flush (http.ResponseController). If it
// cannot, the response is 500.
type Handler struct {
	acceptor transport.Acceptor
	options  HandlerOptions
	bodies   *bodyBudget
	common
	table    *sessionTable
	node     string // the name of this node in the ids of sessions
	refusals refusals
	arrivals sync.Pool // values are *arrival, which no request uses
	proxies  *web.Proxies
	savings  *savings  // nil: sessions are not stored
	restores *restores // sessions that are being restored; nil: sessions are not stored
	owners   owners    // of sessions that were found at another node

	ctx     context.Context // ends when Close is called
	stop    context.CancelFunc
	stopped <-chan struct{} // that of ctx
}

// NewHandler returns a handler that passes every new link to a, on the goroutine of
// the request that opened the link. NewHandler panics if a cannot be compared with ==. If HandlerOptions.Choose is set, a may be nil.
func NewHandler(a transport.Acceptor, o HandlerOptions) *Handler {
	if chosen := a == nil && o.Choose != nil; !chosen && !reflect.ValueOf(a).Comparable() {
		panic(fmt.Errorf("streamable: NewHandler: an Acceptor of type %T cannot be compared with ==: use a pointer", a))
	}
	if bounded, ok := a.(interface{ MaxMemory() int }); ok && o.MaxMemory <= 0 {
		o.MaxMemory = bounded.MaxMemory()
	}
	o = o.withDefaults()
	node := ""
	if o.Router != nil {
		node = o.Router.Node()
	}
	if err := nodename.Check(node); err != nil {
		panic(fmt.Errorf("streamable: NewHandler: Router.Node: %w", err))
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := ctx.Done()
	bodies := newBodyBudget(o.MaxBody, o.MaxHeld, stopped)
	table := newSessionTable(&o)
	h := &Handler{
		acceptor: a, options: o, ctx: ctx, stop: stop, stopped: stopped, node: node,
		proxies: web.NewProxies(o.TrustedProxies, o.logger()),
		bodies:  bodies,
		common:  common{maxFrame: o.MaxFrame, jsonOnly: o.JSONOnly, events: o.EventStore, unread: newUnread(&o), served: newServed(o.MaxHeld, stopped), turns: bodies.turns, listed: table},
		table:   table,
		savings: newSavings(&o),
	}
	if h.savings != nil {
		h.restores = newRestores(stopped)
	}
	if o.Sessions != nil {
		o.Sessions.Bind(h.lost)
	}
	return h
}

// Close refuses new requests with 503, and closes all links, each within the grace.
// It writes what is queued for open responses, and answers all other requests with
// 503. Close may be called again: later calls wait for the first, and a shorter grace
// shortens it. The error names what was left behind.
//
// Serve, ListenAndServe and Shutdown call Close in the right order. If your program
// calls it itself, close the Acceptor first, so that calls in flight can finish, and
// call http.Server.Shutdown afterwards. Shutdown waits for open GET streams and does
// not end them, but Close does. With HandlerOptions.Sessions use Shutdown of the Handler
// instead: a session that the Acceptor closes before the Handler is closed does not go on.
func (h *Handler) Close(grace time.Duration) error {
	h.stop()
	used, idle := h.table.close()
	left := make([]error, len(used)+len(idle))
	var closing sync.WaitGroup
	for i, l := range used {
		closing.Go(func() { left[i] = l.Close(grace) })
	}
	for i, l := range idle {
		left[len(used)+i] = l.Close(grace)
	}
	closing.Wait()
	h.table.expiring.Wait()
	h.restores.close()
	h.savings.close()
	return errors.Join(left...)
}

// newSessionID returns the id for a session that begins on this node.
func (h *Handler) newSessionID() string { return nodename.Join(h.node, newSessionID()) }

// refusals count what a handler has refused, by status.
type refusals struct {
	mu     sync.Mutex
	counts map[int]uint64
	denied map[int]uint64 // of these: their senders may not do that
}

// add counts a refusal. An aborted response has no status, and counts as 0.
func (r *refusals) add(status int, denied bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts, r.denied = make(map[int]uint64), make(map[int]uint64)
	}
	if r.counts[status]++; denied {
		r.denied[status]++
	}
}

// lost ends this node's copy of a session that another node has taken.
func (h *Handler) lost(session string) {
	if h.restores == nil {
		return
	}
	h.restores.lose(session)
	if l := h.table.lookup(session); l != nil && l.saved != nil {
		l.saved.lose()
		l.end(transport.ErrSessionMoved, 0)
	}
}
