package streamable

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// HandlerOptions configures a Handler. The zero value means the defaults. For every
// numeric field, a value of zero or less means the default.
type HandlerOptions struct {
	// Choose returns the server for a request. The handler calls it when a request
	// begins a session, and for every message without a session. A session stays
	// with its server. If Choose returns nil or a nil pointer, the response is 404.
	// Default: the Acceptor given to NewHandler.
	//
	// The handler compares Acceptors with ==, so always return the same pointer for
	// the same server. If the result cannot be compared, the response is 500.
	Choose func(*http.Request) transport.Acceptor

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
	// server's own origin. For any other origin the response is 403. Requests
	// without an Origin header are allowed, because they do not come from a web page.
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
	// addresses. For any other Host header the response is 403, since it may be an
	// attack by DNS rebinding. If AllowedHosts is empty, the Host header is
	// checked only for requests that arrive on a loopback address.
	AllowedHosts []string

	// TrustedProxies lists the addresses of the reverse proxies in front of the handler, such as 10.0.0.0/8. If a request comes
	// from one of them, its client is the last address in X-Forwarded-For that is none of them; or in Forwarded (RFC
	// 7239), if there is no X-Forwarded-For. This address is whose share of the limits a client without an identity
	// uses, and transport.Origin.Client. It is not used for anything else, such as AllowedHosts. If the header is malformed or
	// longer than 4 KiB, or if both are there and differ, the client is the proxy.
	//
	// Make sure that nobody but the proxy can send requests from these addresses, and that the proxy adds to the header or
	// replaces it. Default: no proxy is trusted. All clients without an identity behind one proxy are then one client.
	TrustedProxies []netip.Prefix

	// MaxBody is the maximum size of the body of a POST, in bytes; default 4 MiB. For
	// a longer body, and for an initialize above 64 KiB, the response is 413.
	MaxBody int

	// MaxFrame is the maximum size of a message to a client, in bytes; default 16
	// MiB. Send refuses a longer message with a *transport.OversizedError.
	MaxFrame int

	// MaxSessions is the maximum number of sessions at a time; default 10,000. All messages of a client without a
	// session count as one session, and a session whose initialize is above 4 KiB counts as several
	// (above 1 MiB divided by MaxSessions, if that is more).
	//
	// Clients share the sessions. One client alone may have 38 % of them, or less the more others have; fewer than
	// 64 go to whom comes first. A client is an identity or, if anonymous, a network address; see Handler.
	//
	//   - Beyond that, a new session replaces an idle one of the client that has most: first one whose
	//     client has never used its id, then the link of a client without a session, then the one that is
	//     idle longest. A client does not lose its only session while another one has several.
	//   - If none can be replaced, the response is 503. Set Identify or TrustedProxies if many clients share a proxy.
	MaxSessions int

	// Stateless serves legacy clients without keeping sessions, so any node can serve
	// any request. The response to initialize has no session id. Each request is
	// served in a separate session, in the revision that its header names. If the
	// server does not support that revision, the response is 400.
	//
	// The server cannot ask or notify such clients, and they cannot come back for a
	// response. For GET and DELETE the response is 405. Their notifications are
	// accepted and ignored, also notifications/cancelled: a client cancels a request
	// by disconnecting. For clients of 2026-07-28 nothing changes.
	Stateless bool

	// Router finds the node of a session that is not on this node, if several nodes
	// serve one endpoint. Default: this node is the only one. NewHandler panics if the
	// result of Router.Node cannot be part of a session id.
	Router Router

	// Sessions keeps sessions, so that they go on after a restart of the server, or on
	// another node when theirs has ended. Their clients notice nothing, except that calls
	// and questions that were under way are lost. Give each handler a separate store.
	// Default: a session ends with its process.
	//
	//   - A request of a session that is not here takes it from the store. It waits for
	//     that for 5 s at most; then the response is 503. The server gets the initialize of
	//     the client again, and what it has stored itself (transport.Keeper).
	//   - A session that is restored counts as one that begins.
	//   - Serve and Shutdown free sessions, so that they go on elsewhere.
	Sessions SessionStore

	// NoListening refuses the GET stream of a session with 405. Clients of sessions
	// open this stream for notifications and questions that belong to none of their
	// requests. Each such stream costs a connection. Clients can still come back for
	// responses.
	NoListening bool

	// JSONOnly answers each request with one JSON document and never with a stream of events, for
	// proxies that hold back or cut streams. It includes NoListening, and a subscriptions/listen is
	// answered with -32601. What the server sends during a call has no way to the client then: a
	// question to a client of a session fails with transport.ErrNoRoute, while those of 2026-07-28
	// are part of results and go on as usual; progress and log messages are dropped. Nothing is sent
	// before the answer, so a proxy must have the patience for the longest call, and nobody can come
	// back for a response. Of a batch whose answers have more than 4 MiB, only the last ones arrive.
	JSONOnly bool

	// SessionIdle is how long a session lives without a request or an open GET
	// stream; default 30 min. After that, the response to its requests is 404. The
	// link of a client without a session is closed after the same time, and its next
	// message opens another.
	SessionIdle time.Duration

	// MaxMemory is what the handler and its server may keep for all clients together, in bytes.
	// Default: that of the Acceptor given to NewHandler, if it has a method MaxMemory() int as a
	// *server.Server has (server.Options.MaxMemory), and otherwise 384 MiB. The defaults of MaxHeld,
	// MaxUnread and EventStore are parts of it; see docs/limits.md.
	MaxMemory int

	// MaxHeld limits what requests of all clients hold together, in bytes; default
	// 32 MiB, a twelfth of MaxMemory. Make it at least four times MaxBody. There are several such limits, so that what is small never
	// waits for what is large:
	//
	//   - Bodies that are not delivered yet: one limit for the first 64 KiB of each body, and
	//     one for the rest. After 30 s without room the response is 503. One client may hold
	//     as much as is free then.
	//   - Requests that are served, until their handlers have returned. A request counts its body
	//     and what its values take in memory when decoded (jsonrpc.Message.Memory): up to
	//     64 KiB for one limit, otherwise for three quarters of another one, at most half of that. It waits for
	//     room before anything runs; 10 s after it has arrived the response is 503.
	//   - A subscriptions/listen above 64 KiB, while it is open, counts at most a 32nd, and all of
	//     them at most the other quarter. Without room the response is 503 at once.
	//
	// conn.Tuning.MaxHeld also applies to each Conn.
	MaxHeld int

	// MaxUnread limits the messages that wait to be written to clients, in bytes;
	// default 64 MiB, a sixth of MaxMemory. There are two such limits: one for messages up to 64 KiB, and
	// one for larger ones. Clients share each limit: one client alone may have 38 % of it
	// unread, and less the more others have. Room for a short answer is taken before a request is
	// delivered; without it the response is 503, and the request is not executed. A longer answer that
	// finds no room is dropped, and the client gets the error jsonrpc.CodeAnswerDropped. The
	// minimum is 64 KiB.
	MaxUnread int

	// KeepAlive is how long an event stream may be silent before the handler sends a
	// comment, which keeps proxies from closing the connection; default 15 s.
	KeepAlive time.Duration

	// EventStore keeps the events of sessions. A client whose connection broke then
	// gets what it missed. Give each handler a separate store. Default: a MemoryStore
	// with its default limits.
	EventStore EventStore

	// Log receives a warning, once for each session, when a client comes back for its
	// GET stream and messages that it missed are no longer stored. The stream says so
	// in a comment, too. Log receives a warning when Sessions begins to fail, an error
	// when Check returns neither a Caller nor a Denial, and once a warning when a request that a proxy seems to have sent comes
	// from none of TrustedProxies. Default: slog.Default().
	Log *slog.Logger

	// Retry is how long clients of 2025-11-25 should wait before they come back for a
	// broken stream; default 1 s.
	Retry time.Duration

	// ShutdownGrace is the maximum time for Serve and ListenAndServe to shut down
	// after their context has ended; default 10 s. Calls in flight have four fifths
	// of that time to finish.
	ShutdownGrace time.Duration
}

func (o *HandlerOptions) logger() *slog.Logger { return cmp.Or(o.Log, slog.Default()) }

func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxBody = cmp.Or(max(o.MaxBody, 0), 4<<20)
	o.MaxFrame = cmp.Or(max(o.MaxFrame, 0), parts.DefaultMaxFrame)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 10_000)
	o.SessionIdle = cmp.Or(max(o.SessionIdle, 0), 30*time.Minute)
	o.MaxMemory = cmp.Or(max(o.MaxMemory, 0), 384<<20)
	o.MaxHeld = cmp.Or(max(o.MaxHeld, 0), o.MaxMemory/12)
	o.MaxUnread = max(cmp.Or(max(o.MaxUnread, 0), o.MaxMemory/6), smallSize)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 15*time.Second)
	o.NoListening = o.NoListening || o.JSONOnly
	o.Retry = cmp.Or(max(o.Retry, 0), time.Second)
	if o.EventStore == nil {
		o.EventStore = &MemoryStore{MaxBytes: o.MaxMemory / 24}
	}
	o.ShutdownGrace = cmp.Or(max(o.ShutdownGrace, 0), 10*time.Second)
	return o
}
