package hop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/bowline-mcp/bowline/internal/network"
)

// A route leads to one run of a node.
type route struct {
	hop      *Hop
	peer     Peer
	settings *tls.Config
	proxy    *httputil.ReverseProxy
	lines    lines
	away     sync.Once // has said that the node cannot be reached
}

// route returns the route to a living node, or nil.
func (h *Hop) route(node string) *route {
	p, living := h.peers.Living(node)
	now, old := h.replaceRoute(node, p, living)
	if old != nil {
		old.lines.close() // what it does now goes on
	}
	return now
}

// replaceRoute returns the route to a node, nil if it does not live, and the one that is no longer
// used, if any.
func (h *Hop) replaceRoute(node string, p Peer, living bool) (now, old *route) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old = h.routes[node]
	if living && old != nil && old.peer == p {
		return old, nil
	}
	delete(h.routes, node)
	if living && !h.closed {
		now = newRoute(h, p)
		h.routes[node] = now
	}
	return now, old
}

func newRoute(h *Hop, p Peer) *route {
	r := &route{hop: h, peer: p, settings: toPeer(h.certificate, p)}
	r.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: r, BufferPool: &h.buffers, FlushInterval: -1,
		ErrorHandler: r.failed, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
	return r
}

// SessionPath is where To sends requests: Mount a handler for them there.
const SessionPath = "/session"

// To returns a handler that forwards requests to a node, or nil if the node does not live. The
// node finds path, host, headers and addresses as this one has received them.
//
// If the request was not sent, because no connection to the node can be made or the node has
// ended meanwhile, the response is 421. If it may have been sent and no response arrived, it is
// 502. A response that breaks off is aborted.
func (h *Hop) To(node string) http.Handler {
	if r := h.route(node); r != nil {
		return r.proxy
	}
	return nil
}

// rewrite prepares a request for the other node. ReverseProxy has removed what concerns only the
// connection of the client.
func rewrite(r *httputil.ProxyRequest) {
	to := *r.In.URL
	if asked, err := url.ParseRequestURI(r.In.RequestURI); err == nil { // middleware may have changed URL
		to = url.URL{Path: asked.Path, RawPath: asked.RawPath, RawQuery: asked.RawQuery}
	}
	to.Scheme, to.Host, to.User = "http", "node", nil
	to.Path = SessionPath + to.Path
	if to.RawPath != "" {
		to.RawPath = SessionPath + to.RawPath
	}
	r.Out.URL, r.Out.Host = &to, r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	r.Out.Header.Del("Upgrade") // HTTP/2 has none
	r.Out.Header.Del("Connection")
	r.Out.Header.Set(headerReceived, receivedOf(r.In).String())
}

// RoundTrip implements http.RoundTripper.
func (r *route) RoundTrip(request *http.Request) (*http.Response, error) {
	r.hop.counts.forwarded.Add(1)
	body, err := takeBody(request)
	if err != nil {
		return nil, r.count(request.Context(), err)
	}
	// A ReverseProxy wants to pass on what precedes a response, such as the 100 that the other
	// node sends before it reads a body. The client has not asked for it.
	request = request.WithContext(untraced{request.Context()})
	for {
		l, err := r.lines.enter(request.Context(), r.connect)
		if err != nil {
			body.end()
			return nil, r.count(request.Context(), err)
		}
		body.attach(request)
		response, err := l.transport.RoundTrip(request)
		if err == nil {
			r.hop.counts.open.Add(1)
			response.Body = &counted{ReadCloser: response.Body, of: r, over: l, sent: body}
			return response, nil
		}
		r.lines.leave(l)
		if errors.Is(err, errUnusable) && request.Context().Err() == nil {
			r.lines.retire(l)
			continue // on another line; this happens once for each that there is
		}
		body.end()
		return nil, r.count(request.Context(), err)
	}
}

// count counts a request without a response.
func (r *route) count(ctx context.Context, err error) error {
	switch {
	case isUnsent(err), errors.As(err, new(*bodyError)):
		r.hop.counts.unsent.Add(1)
	case ctx.Err() == nil:
		r.hop.counts.unknown.Add(1)
	}
	return err
}

// isUnsent reports whether there was no connection for a request.
func isUnsent(err error) bool { return errors.As(err, new(*dialError)) }

// failed answers a request without a response.
func (r *route) failed(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case isUnsent(err):
		http.Error(w, fmt.Sprintf("node %s cannot be reached; the request was not sent", r.peer.Node), http.StatusMisdirectedRequest)
	case errors.As(err, new(*bodyError)):
		http.Error(w, "the body has not arrived", http.StatusBadRequest)
	default:
		http.Error(w, fmt.Sprintf("node %s has not answered; it is unknown whether it has executed the request", r.peer.Node), http.StatusBadGateway)
	}
}

// RoundTripper returns what sends requests to a node, each to its path: the handler that is
// mounted there answers. It returns nil if the node does not live. An error that contains a
// *net.OpError of a dial says that the request was not sent.
func (h *Hop) RoundTripper(node string) http.RoundTripper {
	if r := h.route(node); r != nil {
		return direct{r}
	}
	return nil
}

// direct sends a node's own requests.
type direct struct{ *route }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context()) // a RoundTripper must not change it
	request.URL.Scheme, request.URL.Host, request.Close = "http", "node", false
	request.Header.Set(headerReceived, received{tls: true}.String())
	return d.route.RoundTrip(request)
}

// A dialError says that no connection to a node can be made.
type dialError struct {
	node string
	err  *net.OpError
}

func (e *dialError) Error() string { return fmt.Sprintf("cluster: reach node %q: %v", e.node, e.err) }
func (e *dialError) Unwrap() error { return e.err }

// connect makes a line to the node. In TLS 1.3 this side is done before the other one has checked
// its certificate. But after that check, and only then, the other side sends its HTTP/2 settings.
// So with the first byte of them the connection is good, and a request that cannot be sent on it
// is known to be unsent.
func (r *route) connect(ctx context.Context) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := r.dial(ctx)
	if err != nil {
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" {
			dial = &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.away.Do(func() {
				r.hop.log.Warn("cluster: another node cannot be reached; check its --hop and --advertise, or a firewall, unless it has just ended",
					"to", r.peer.Node, "address", r.peer.Address, "err", dial)
			})
		}
		return nil, &dialError{r.peer.Node, dial}
	}
	return c.line, nil
}

// dial makes a connection that the other node has accepted.
func (r *route) dial(ctx context.Context) (*connection, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", r.peer.Address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	c := &connection{Conn: tls.Client(raw, r.settings), hop: r.hop, unread: true}
	c.line = newLine(&r.lines, c)
	if err = c.Conn.HandshakeContext(ctx); err == nil {
		_, err = io.ReadFull(c.Conn, c.first[:])
	}
	switch {
	case !stop():
		err = ctx.Err()
	case err == nil && !r.hop.register(c):
		err = ErrClosed
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// A connection leads to another node, which has accepted it. It hides the TLS from net/http, which
// otherwise allows nothing between it and HTTP.
type connection struct {
	*tls.Conn
	hop    *Hop
	line   *line
	first  [1]byte
	unread bool // first was not returned yet; one goroutine reads
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	if c.unread && len(p) > 0 {
		c.unread = false
		return copy(p, c.first[:]), nil
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.hop.forget(c)
	c.line.ended()
	return c.Conn.Close()
}

// register keeps a connection for Close. It reports false if Close was called.
func (h *Hop) register(c *connection) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.outgoing[c] = struct{}{}
	return true
}

func (h *Hop) forget(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.outgoing, c)
}

// Gone reports whether the process of a node does not serve its address any more: the machine refuses
// connections, or another program answers. It reports false if it cannot tell.
func (h *Hop) Gone(ctx context.Context, p Peer) bool {
	ctx, cancel := context.WithTimeout(ctx, knockPatience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return network.IsRefused(err)
	}
	defer c.Close() // nothing was sent but a handshake
	err = tls.Client(c, toPeer(h.certificate, p)).HandshakeContext(ctx)
	return errors.As(err, new(*KeyError)) || errors.As(err, new(tls.RecordHeaderError))
}

// A counted body is that of a response, and counts its end.
type counted struct {
	io.ReadCloser
	once sync.Once
	of   *route
	over *line
	sent *sentBody
}

// Close implements io.Closer.
func (c *counted) Close() error {
	err := c.ReadCloser.Close() // now its stream is free
	c.once.Do(func() {
		c.sent.end()
		c.of.hop.counts.open.Add(-1)
		c.of.lines.leave(c.over)
	})
	return err
}

// untraced is a context without a trace of HTTP.
type untraced struct{ context.Context }

// Value implements context.Context.
func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, traced := v.(*httptrace.ClientTrace); traced {
		return nil
	}
	return v
}

// buffers are what responses are copied with.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }
