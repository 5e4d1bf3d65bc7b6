package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// HandlerOptions configures a Handler. The zero value means the defaults. In the
// numbers, zero and less mean the default.
type HandlerOptions struct {
	// Choose returns the server of a request. The handler asks it when a request
	// begins a session and for every message without a session; a session stays
	// with its server. If Choose returns nil, also a nil pointer, the response is
	// 404. Default: the Acceptor given to NewHandler.
	//
	// The handler compares Acceptors with ==. Return the same pointer each time
	// you mean the same server. If the result cannot be compared, the response is
	// 500.
	Choose func(*http.Request) Acceptor

	// Identify returns the identity of the client, as your authentication has
	// established it: a user id for instance, or "" for an anonymous client. Handlers
	// read it as transport.Origin.Identity. A session belongs to the identity that
	// opened it. If another identity uses it, the response is 403. Default: every
	// client is anonymous.
	Identify func(*http.Request) string

	// Check authenticates a request. It runs after the checks of method, origin, host
	// and announced size, and before the body is read. It returns the sender, or how
	// to deny the request. If Check is set, Identify is not used. The Caller must not
	// be nil unless the request is denied: if both are nil, the response is 500.
	// Every request is checked, including GET and DELETE. A request for another
	// identity's session gets 404, as for an unknown session. See auth/resource for
	// OAuth. Default: nobody is denied.
	Check func(*http.Request) (Caller, *Denial)

	// AllowedOrigins lists the values of the Origin header, such as
	// "https://app.example.com", that browsers may send in addition to the
	// server's own origin. Another origin is answered with 403. Requests without
	// an Origin header do not come from a page and pass.
	//
	// The server's own origin is the Host of the request: with https if the
	// request came by TLS, and with http if the host is localhost, a loopback
	// address or one of AllowedHosts. Behind a proxy that terminates TLS, list
	// the server's public origin here.
	//
	// A page of another origin also needs CORS. Put CORS middleware in front of
	// the handler, let it answer OPTIONS (405 here), and expose Mcp-Session-Id.
	AllowedOrigins []string

	// AllowedHosts lists the host names, with or without a port, under which
	// clients may call the server in addition to localhost and loopback
	// addresses. Another Host header is answered with 403, since it may be an
	// attack by DNS rebinding. If AllowedHosts is empty, the Host header is
	// checked only for requests that arrive on a loopback address.
	AllowedHosts []string

	// MaxBody is the longest body of a POST, in bytes; default 4 MiB. A longer one
	// is answered with 413, as is an initialize above 64 KiB.
	MaxBody int

	// MaxFrame is the longest message to a client, in bytes; default 16 MiB. Send
	// refuses a longer one with a *transport.OversizedError.
	MaxFrame int

	// MaxSessions is how many sessions there may be at a time; default 10,000. Each
	// client without a session counts as one.
	//
	//   - A new session replaces the one that is idle longest: of those whose client
	//     has never used its id, else of clients without a session, else of all.
	//   - If none is idle, the response is 503.
	//   - Their initialize requests may have 4 KiB together for each of MaxSessions,
	//     but at least 1 MiB; one that is too much replaces sessions in the same way.
	MaxSessions int

	// MaxClientSessions is how many of the sessions one client may have, and a
	// quarter of all bytes is what they may keep. A new one replaces an idle one of
	// the same client; if none is idle, the response is 503. A client is an identity
	// or, if anonymous, a network address, see Handler: raise MaxClientSessions if
	// anonymous clients come through one proxy. Default: a quarter of MaxSessions,
	// but at least 16.
	MaxClientSessions int

	// Stateless serves clients of the revisions with sessions without keeping one:
	// initialize gives no session id, and each request is served by a session of its
	// own, in the revision that its header names. So any node can serve any request.
	// If the server does not speak that revision, the response is 400.
	//
	// Such clients cannot be asked or told anything, nor come back for a response;
	// GET and DELETE are answered with 405. Their notifications are accepted and
	// ignored, also notifications/cancelled: a client cancels a request by leaving
	// it. Clients of 2026-07-28 see no difference.
	Stateless bool

	// Router finds the node of a session that is not here, where several nodes serve
	// one endpoint. Default: sessions are here or nowhere. NewHandler panics if its
	// Node cannot be part of a session id.
	Router Router

	// NoListening answers the GET request with 405 by which clients of sessions open
	// a stream for notifications and questions that belong to no request of theirs.
	// Each such stream costs a connection. Clients can still come back for responses.
	NoListening bool

	// SessionIdle is how long a session lives without a request or an open GET
	// stream; default 30 min. Later requests are answered with 404. The link of a
	// client without a session is closed after the same time, and its next message
	// opens another.
	SessionIdle time.Duration

	// MaxHeld bounds the bodies that were not delivered yet, in bytes; default
	// 128 MiB. There are two such bounds, one for the first 64 KiB of every
	// body and one for the rest, so that small bodies never wait for large
	// ones. A request beyond a bound waits, and is answered with 503 after 30
	// s. One client may hold a quarter of each, but one MaxBody in any case: its own
	// requests then wait for each other.
	MaxHeld int

	// MaxUnread bounds the messages that wait to be written to clients, in bytes;
	// default 128 MiB. One client may have a quarter of it, but one message of
	// MaxFrame in any case. There are two such bounds, one for messages up to 64 KiB
	// and one for larger ones. A response beyond a bound is aborted.
	MaxUnread int

	// KeepAlive is the silence after which an event stream sends a comment, so
	// that proxies keep the connection; default 15 s.
	KeepAlive time.Duration

	// EventStore keeps the events of sessions, so that a client whose connection broke
	// gets what it missed. Give each handler a store of its own. Default: a
	// MemoryStore with its default bounds.
	EventStore EventStore

	// Log is told, as a warning and once for each session, when a client comes back for
	// its GET stream and messages that it has missed are not kept any more. The stream
	// says so in a comment. It is told as an error when Check decides nothing. Default:
	// slog.Default().
	Log *slog.Logger

	// Retry is how long clients of 2025-11-25 are told to wait before they come back
	// for a stream that broke off; default 1 s.
	Retry time.Duration

	// ShutdownGrace is how long Serve and ListenAndServe take at most to shut down
	// after their context has ended; default 10 s. Calls in flight have four fifths
	// of it to finish.
	ShutdownGrace time.Duration
}

func (o *HandlerOptions) logger() *slog.Logger { return cmp.Or(o.Log, slog.Default()) }

func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxBody = cmp.Or(max(o.MaxBody, 0), 4<<20)
	o.MaxFrame = cmp.Or(max(o.MaxFrame, 0), defaultMaxFrame)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 10_000)
	o.MaxClientSessions = min(cmp.Or(max(o.MaxClientSessions, 0), max(o.MaxSessions/4, 16)), o.MaxSessions)
	o.SessionIdle = cmp.Or(max(o.SessionIdle, 0), 30*time.Minute)
	o.MaxHeld = cmp.Or(max(o.MaxHeld, 0), 128<<20)
	o.MaxUnread = cmp.Or(max(o.MaxUnread, 0), 128<<20)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 15*time.Second)
	o.Retry = cmp.Or(max(o.Retry, 0), time.Second)
	if o.EventStore == nil {
		o.EventStore = new(MemoryStore)
	}
	o.ShutdownGrace = cmp.Or(max(o.ShutdownGrace, 0), 10*time.Second)
	return o
}

// An Acceptor serves links. A *server.Server is one. Its value must be comparable,
// such as a pointer.
type Acceptor interface {
	// Accept serves a link, and returns without waiting for the link's end. It
	// binds the link before it returns. If it closes the link instead, or does
	// not bind it, the request that opened the link is answered with 503. When
	// the link is lost, the acceptor closes it.
	Accept(link transport.Link)

	// Close lets the calls that are being served finish until ctx ends, and ends
	// all that the acceptor serves. It waits for that. Links that are accepted
	// later are closed at once. Handler.Serve calls it, Handler.Close does not.
	Close(ctx context.Context) error
}

// A Handler is an http.Handler that serves one MCP endpoint over Streamable HTTP,
// in every revision. It is safe for concurrent use.
//
// Every session is a link of its own. A session outlives the connections of its
// client. It ends by DELETE (the link is lost with ErrPeerClosed), after
// SessionIdle, when it makes room for a new one (both ErrSessionExpired), or by
// Close. Messages without a session share one link per client, so that the bounds of
// that link bind no other client. A client is an identity or, if anonymous, an IPv4
// address or the /64 network of an IPv6 address: clients behind one proxy need an
// identity (Identify) to be told apart.
// On such a link a client that leaves its request is a lost stream, with
// ErrPeerClosed.
//
// Each message carries a transport.Origin: the address, headers and TLS state of
// the HTTP request that brought it. A server's handler sees the values of that
// request's context in its own context. Authenticate in ordinary middleware.
//
// A link has no goroutine of its own, and an idle session costs less than a
// kilobyte. The goroutines of net/http write the responses. A client that takes
// less than 64 KiB of its response in 30 s is disconnected, as is a client that
// sends its body more slowly than 64 KiB/s after the first 30 s, or none of the next
// 64 KiB for 10 s. Timeouts of http.Server hold as well.
//
// A request that is refused for want of room has not been executed. It is answered
// with 503, Retry-After, and jsonrpc.CodeOverloaded.
//
// The events of sessions are numbered and kept (HandlerOptions.EventStore): a client
// whose connection breaks comes back for what it has missed, as ADR-0033 says.
//
// The GET stream of a session queues 256 frames and 16 MiB (one frame always
// fits); beyond, Send returns transport.ErrBusy. The response to a request queues
// 16,384 frames and 16 MiB; the last frame always fits. All that waits is bounded by
// MaxUnread. Beyond, the stream is lost with ErrNotReading and the response aborted.
//
// Event streams need a ResponseWriter that can flush (http.ResponseController).
// Without it they are answered with 500.
type Handler struct {
	acceptor Acceptor
	options  HandlerOptions
	room     *room
	common
	node     string // in the ids of sessions
	refusals refusals

	once    sync.Once
	stopped chan struct{} // Close was called
}

// NewHandler returns a handler that passes every new link to a, in the goroutine
// of the request that opened the link. NewHandler panics with an error if a cannot
// be compared with ==.
func NewHandler(a Acceptor, o HandlerOptions) *Handler {
	if !reflect.ValueOf(a).Comparable() {
		panic(fmt.Errorf("streamable: NewHandler: an Acceptor of type %T cannot be compared with ==: use a pointer", a))
	}
	o = o.withDefaults()
	node := ""
	if o.Router != nil {
		node = o.Router.Node()
	}
	if err := checkNode(node); err != nil {
		panic(err)
	}
	stopped := make(chan struct{})
	return &Handler{
		acceptor: a, options: o, stopped: stopped, node: node,
		room:   newRoom(o.MaxBody, o.MaxHeld, stopped),
		common: common{maxFrame: o.MaxFrame, events: o.EventStore, unread: newUnread(&o), table: newSessionTable(&o)},
	}
}

// Close refuses new requests with 503 and closes all links, each within the grace:
// what is queued for open responses is written, other requests are answered with
// 503. Later calls wait for the first; a shorter grace shortens it. The error names
// what was left behind.
//
// Serve, ListenAndServe and Shutdown call Close in the right order. A program that
// calls it itself closes the Acceptor before, so that calls in flight can finish, and
// calls http.Server.Shutdown after, which waits for open GET streams and does not end
// them.
func (h *Handler) Close(grace time.Duration) error {
	h.once.Do(func() { close(h.stopped) })
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
	return errors.Join(left...)
}

// ServeHTTP implements http.Handler. It returns when the response is complete. It
// panics with http.ErrAbortHandler, as net/http wants it, to abort a response that
// it cannot complete.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refused := h.serve(w, r); refused != nil {
		h.refusals.add(refused.status)
		refused.write(w)
	}
}
