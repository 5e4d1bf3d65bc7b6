package websocket

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// HandlerOptions configure a Handler. The zero value means the defaults. For every numeric field, a value of zero or less means the default.
type HandlerOptions struct {
	// Identify returns the identity of the client, as your authentication has established it in the handshake: a user id for instance, or ""
	// for an anonymous client. Handlers read it as transport.Origin.Identity. Default: every client is anonymous.
	Identify func(*http.Request) string

	// AllowedOrigins lists the values of the Origin header, such as "https://app.example.com", that browsers may send in addition to the
	// server's own origin. For any other origin the response is 403: browsers let any page open a WebSocket to any server, with its cookies.
	AllowedOrigins []string

	// AllowedHosts lists the host names, with or without a port, under which clients may call the server in addition to localhost and
	// loopback addresses. For any other Host header the response is 403, since it may be an attack by DNS rebinding. If AllowedHosts is empty,
	// the Host header is checked only for requests that arrive on a loopback address.
	AllowedHosts []string

	// TrustedProxies lists the addresses of the reverse proxies in front of the handler, as in sse.HandlerOptions. Default: no proxy is
	// trusted. All clients without an identity behind one proxy are then one client.
	TrustedProxies []netip.Prefix

	// MaxFrame is the maximum size of a message in either direction, in bytes; default 4 MiB. A client that sends a longer one loses its
	// connection with status 1009. Send refuses one with a *transport.OversizedError.
	MaxFrame int

	// MaxSessions is the maximum number of connections at a time; default 1,000. Clients share them: one client, which is an identity or, if
	// anonymous, a network, may have 38 % of them, or less the more others have; fewer than 64 go to whom comes first. Beyond that, the
	// response is 503.
	MaxSessions int

	// Log receives a warning, once, when a request that a proxy seems to have sent comes from none of TrustedProxies. Default: slog.Default().
	Log *slog.Logger
}

// A Handler is an http.Handler that serves one MCP endpoint over WebSocket. It is safe for concurrent use. ServeHTTP returns when the connection
// has ended.
//
// Each connection is one link. It ends when its client closes it or is gone, or by Close. Every message carries the transport.Origin of the
// handshake, and a server's handler sees the values of its context. The handler adds no login: authenticate in ordinary middleware, and let
// Identify return what it has put into the context of the request. A login that ends does not end the connection.
//
// The Acceptor given to NewHandler learns what the handler refuses, if it is a transport.Auditor.
//
// A link queues at most 256 frames and 16 MiB for its client. One frame always fits. If the queue is full, Send returns transport.ErrBusy. All
// clients together leave at most 64 MiB of messages up to 64 KiB unread, and 64 MiB of longer ones, which they share. Beyond that, Send returns
// transport.ErrNoRoom for what is longer than 1 KiB. A client that does not take a message, or 64 KiB of a longer one, in 30 s is disconnected. Of messages above 64 KiB,
// 32 are read at a time, and those that are served may take 64 MiB together, which clients share. A client beyond its share, or that sends a
// message more slowly than 64 KiB/s after its first 30 s, is disconnected.
type Handler struct {
	acceptor transport.Acceptor
	options  HandlerOptions
	proxies  *web.Proxies
	places   *share.Pool // of connections
	pools    *pools

	mu      sync.Mutex
	links   map[*link]struct{}
	stopped bool
}

// NewHandler returns a handler that passes every new link to a, on the goroutine of the request that opened it.
func NewHandler(a transport.Acceptor, o HandlerOptions) *Handler {
	o.MaxFrame = cmp.Or(max(o.MaxFrame, 0), 4<<20)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 1000)
	// shared: connections over WebSocket | HandlerOptions.MaxSessions places | one | the handshake is refused with 503 | `Acceptor` (`transport.Auditor`)
	return &Handler{
		acceptor: a, options: o, proxies: web.NewProxies(o.TrustedProxies, cmp.Or(o.Log, slog.Default())),
		places: share.NewPlaces(o.MaxSessions), pools: newPools(), links: make(map[*link]struct{}),
	}
}

// Shutdown closes the acceptor given to NewHandler, so that calls in flight can finish, then the handler, and then srv, and returns when all of
// them are closed. If srv is nil, close your http.Server yourself after Shutdown.
//
// Shutdown ends at the deadline of ctx, or after 10 s if ctx has none. It cuts off what has not finished in time, or when ctx ends for another
// reason, and its error says what.
func (h *Handler) Shutdown(ctx context.Context, srv *http.Server) error {
	grace := web.GraceOf(ctx)
	h.stop()
	return web.Shutdown{Name: "websocket", Acceptors: []transport.Acceptor{h.acceptor}, Close: h.Close, Server: srv, Grace: grace}.Run(ctx)
}

// Close refuses new connections with 503 and closes all links, each within the grace. The error names what was left behind. If your program does
// not call Shutdown, close the Acceptor first, so that calls in flight can finish. http.Server.Shutdown and Close do not end WebSockets.
func (h *Handler) Close(grace time.Duration) error {
	return web.CloseAll(h.stop(), grace)
}

// stop refuses new connections, and returns the links that there are.
func (h *Handler) stop() []*link {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	return slices.Collect(maps.Keys(h.links))
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since := time.Now()
	r = h.proxies.Received(r)
	if refused := h.serve(w, r); refused != nil {
		h.audit(r, since, refused)
		http.Error(w, refused.text, refused.status)
	}
}

// A refusal is the response to a request that opens no connection.
type refusal struct {
	status   int
	text     string
	identity string // of the client; "" if unknown
}

// serve serves a connection until it ends. If the request is refused, it returns how.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *refusal {
	allowed := web.Allowed{Origins: h.options.AllowedOrigins, Hosts: h.options.AllowedHosts}
	if err := allowed.Check(r); err != nil {
		return &refusal{status: http.StatusForbidden, text: err.Error()}
	}
	if refused := checkHandshake(w, r); refused != nil {
		return refused
	}
	identity := ""
	if h.options.Identify != nil {
		identity = h.options.Identify(r)
	}
	of := web.ClientOf(identity, web.AddressOf(r))
	if !h.places.Take(of, 1) {
		return &refusal{http.StatusServiceUnavailable, "no more connections are possible for this client now", identity}
	}
	defer h.places.Give(of, 1)
	l := newLink(h.options.MaxFrame)
	l.origin, l.share = web.OriginOf(r, identity), &account{h.pools, of}
	if !h.add(l) {
		return &refusal{http.StatusServiceUnavailable, "shutting down", identity}
	}
	defer h.remove(l)
	defer l.end(transport.ErrClosed) // if the Acceptor panics
	h.acceptor.Accept(l)
	if !l.recv.Bound() || !l.begin() {
		return &refusal{http.StatusServiceUnavailable, "shutting down", identity}
	}
	options := ws.AcceptOptions{Subprotocols: []string{subprotocol}, InsecureSkipVerify: true} // the origin was checked
	conn, err := ws.Accept(&upgrade{w, &l.traffic}, r, &options)
	if err != nil { // which the client was told
		l.fail(fmt.Errorf("websocket: accept: %w", err))
		return nil
	}
	l.run(conn)
	return nil
}

// checkHandshake refuses what is no handshake of a client of MCP, before a server learns of it.
func checkHandshake(w http.ResponseWriter, r *http.Request) *refusal {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		return &refusal{status: http.StatusMethodNotAllowed, text: "method not allowed"}
	case r.ProtoMajor != 1 || r.ProtoMinor < 1 || !has(r.Header, "Connection", "upgrade") || !has(r.Header, "Upgrade", "websocket"):
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return &refusal{status: http.StatusUpgradeRequired, text: "this is an endpoint for WebSockets"}
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		w.Header().Set("Sec-WebSocket-Version", "13")
		return &refusal{status: http.StatusBadRequest, text: "Sec-WebSocket-Version must be 13"}
	case !hasKey(r.Header):
		return &refusal{status: http.StatusBadRequest, text: "Sec-WebSocket-Key must have 16 bytes in base64"}
	case r.ContentLength != 0:
		return &refusal{status: http.StatusBadRequest, text: "a handshake has no body"}
	case !has(r.Header, "Sec-WebSocket-Protocol", subprotocol):
		return &refusal{status: http.StatusBadRequest, text: "Sec-WebSocket-Protocol must have mcp"}
	case !web.CanHijack(w):
		return &refusal{status: http.StatusInternalServerError, text: "the ResponseWriter cannot be hijacked, which a WebSocket requires"}
	default:
		return nil
	}
}

// hasKey reports whether a handshake has one key, which is random bytes.
func hasKey(header http.Header) bool {
	keys := header["Sec-Websocket-Key"]
	if len(keys) != 1 {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(keys[0]))
	return err == nil && len(key) == 16
}

// has reports whether a header that lists tokens has one.
func has(header http.Header, name, token string) bool {
	for _, line := range header[http.CanonicalHeaderKey(name)] {
		for item := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(item), token) {
				return true
			}
		}
	}
	return false
}

// audit tells the Auditor what is refused.
func (h *Handler) audit(r *http.Request, since time.Time, refused *refusal) {
	auditor, ok := h.acceptor.(transport.Auditor)
	if !ok || web.IsNil(h.acceptor) || !auditor.Audits() {
		return
	}
	auditor.Refused(transport.Refusal{
		Origin: web.OriginOf(r, refused.identity), Denied: refused.status == http.StatusForbidden,
		Status: refused.status, Err: errors.New(refused.text), Since: since,
	})
}

// add adds a new link. It reports false if the handler is closed.
func (h *Handler) add(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.links[l] = struct{}{}
	}
	return !h.stopped
}

func (h *Handler) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.links, l)
}
