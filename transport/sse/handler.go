package sse

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A Handler is an http.Handler that serves one MCP endpoint over HTTP+SSE: GET opens
// the stream of a session, and POST sends it a message. It is safe for concurrent
// use.
//
// With HandlerOptions.Choose one Handler serves several servers. Each session stays with the
// one that was chosen for its GET. Limits, such as MaxSessions, are for all of them together.
//
// Each session is one link. It ends when its client closes the stream
// (ErrPeerClosed), or by Close. The handler delivers the messages of a session one
// at a time, in the order of their arrival. It responds to a POST with 202 after it
// has delivered the message.
//
// The Acceptor given to NewHandler learns what the handler refuses, if it is a
// transport.Auditor, also if Choose is set.
//
// Each message carries a transport.Origin: the address, headers and TLS state of the
// POST that brought it. A server's handler sees the values of that request's context
// in its own context.
//
// A session queues at most 256 frames and 16 MiB for its client. One frame always
// fits. If the queue is full, Send returns transport.ErrBusy. All clients together leave at most 64 MiB
// of messages up to 64 KiB unread, and 64 MiB of longer ones, which they share. Beyond that, Send returns
// transport.ErrNoRoom for what is longer than 1 KiB, and the client of an answer gets jsonrpc.CodeAnswerDropped. The handler disconnects
// a client that reads less than 64 KiB in 30 s. It holds bodies of at most 64 KiB for
// each session, and of 32 × MaxBody for all longer bodies together, which clients share. Requests that are served may
// take 64 MiB together, with what their values take in memory (jsonrpc.Message.Memory); one counts at most 8 MiB, and beyond
// a client's share the response is 503. If a body arrives
// more slowly than 64 KiB/s after its first 30 s, the response is 408.
//
// A streamable.Handler has more options. This is how to do the same here:
//
//   - Check: authenticate in ordinary middleware, GET and POST alike. Put the identity
//     into the context of the request, and let Identify return it from there.
//   - Serve: call http.Server.ListenAndServe, with a ReadHeaderTimeout, and call
//     Shutdown at the end.
type Handler struct {
	acceptor transport.Acceptor
	options  HandlerOptions
	proxies  *web.Proxies
	large    *share.Pool // of places for large bodies
	places   *share.Pool // of sessions
	served   *share.Pool // of bytes of requests that are served
	unread   *web.Unread
	turns    *turn.Scheduler[share.Client]

	mu       sync.Mutex
	sessions map[string]*serverLink
	stopped  bool
}

// maxServed is how many bytes requests may take that are served, and mostServed what one counts at most: its client gets so
// much even when half of it is in use.
const (
	maxServed  = 64 << 20
	mostServed = maxServed / 8
)

// maxUnread is how many bytes of messages may wait to be written, of those up to 64 KiB and of longer ones.
const maxUnread = 64 << 20

// NewHandler returns a handler that passes every new link to a, on the goroutine of
// the request that opened the link.
func NewHandler(a transport.Acceptor, o HandlerOptions) *Handler {
	o = o.withDefaults()
	// shared: bodies above 64 KiB of HTTP+SSE | maxLarge places of HandlerOptions.MaxBody | one | the body waits, 30 s at most, and is refused with 503 | `Acceptor` (`transport.Auditor`)
	// shared: requests of HTTP+SSE that are served | maxServed bytes | 64 KiB; one counts at most an eighth | the request is refused with 503 | `Acceptor` (`transport.Auditor`)
	// shared: sessions of HTTP+SSE | HandlerOptions.MaxSessions places | one | the session is refused with 503 | `Acceptor` (`transport.Auditor`)
	// shared: messages of HTTP+SSE up to 64 KiB that wait to be written | maxUnread bytes | 64 KiB | an answer is dropped with -32051, and what has up to 1 KiB waits in its session | –
	// shared: longer messages of HTTP+SSE | maxUnread bytes | 256 KiB | the answer is dropped with -32051 | –
	unread := &web.Unread{Small: share.NewLasting(maxUnread, web.SmallMessage+web.FrameOverhead), Large: share.NewLasting(maxUnread, 256<<10)}
	return &Handler{
		unread:   unread,
		acceptor: a, options: o, proxies: web.NewProxies(o.TrustedProxies, cmp.Or(o.Log, slog.Default())), large: share.New(maxLarge, 1, nil), places: share.NewPlaces(o.MaxSessions), served: share.NewLasting(maxServed, web.SmallBody),
		turns:    turn.New[share.Client](runtime.GOMAXPROCS(0)),
		sessions: make(map[string]*serverLink),
	}
}

// Shutdown closes the acceptor given to NewHandler and those that have sessions, so that calls in flight can finish, then the handler, and
// then srv, and returns when all of them are closed. If srv is nil, close your
// http.Server yourself after Shutdown.
//
// Shutdown ends at the deadline of ctx, or after 10 s if ctx has none. The acceptor has
// four fifths of that time. Shutdown cuts off what has not finished in time, or when ctx
// ends for another reason, and its error says what.
func (h *Handler) Shutdown(ctx context.Context, srv *http.Server) error {
	grace := web.GraceOf(ctx)
	return web.Shutdown{Name: "sse", Acceptors: h.acceptorsToClose(), Close: h.Close, Server: srv, Grace: grace}.Run(ctx)
}

// acceptorsToClose refuses new sessions, and returns the acceptors that may have some.
// No session may begin after they were listed: its server would not be closed, and calls of
// the session would be cut off by Close in place of finishing.
func (h *Handler) acceptorsToClose() []transport.Acceptor {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	// The one given to NewHandler may be no key of a map. One that was chosen is: choose refuses others.
	all := []transport.Acceptor{h.acceptor}
	if h.options.Choose == nil {
		return all
	}
	// One that has no sessions now has nothing to finish here, and the handler does not remember it: Choose may return a
	// new one for every session.
	chosen := make(map[transport.Acceptor]struct{})
	for _, l := range h.sessions {
		chosen[l.acceptor] = struct{}{}
	}
	if reflect.ValueOf(h.acceptor).Comparable() {
		delete(chosen, h.acceptor)
	}
	return slices.AppendSeq(all, maps.Keys(chosen))
}

// Close refuses new requests with 503 and closes all links, each within the grace.
// The error names what was left behind. If your program does not call Shutdown, close the
// Acceptor first, so that calls in flight can finish, and call http.Server.Shutdown
// afterwards: it waits for open streams and does not end them, but Close does.
func (h *Handler) Close(grace time.Duration) error {
	h.mu.Lock()
	h.stopped = true
	links := slices.Collect(maps.Values(h.sessions))
	h.mu.Unlock()
	return web.CloseAll(links, grace)
}

// ServeHTTP implements http.Handler.
// The address of the client is found first, because each refusal tells it to the Auditor.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since := time.Now()
	r = h.proxies.Received(r)
	if refused := h.serve(w, r); refused != nil {
		h.refuse(w, r, since, refused)
	}
}

// serve serves a request. If the request is refused, serve returns how.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *refusal {
	allowed := web.Allowed{Origins: h.options.AllowedOrigins, Hosts: h.options.AllowedHosts}
	if err := allowed.Check(r); err != nil {
		return &refusal{status: http.StatusForbidden, text: err.Error()}
	}
	switch r.Method {
	case http.MethodGet:
		return h.get(w, r)
	case http.MethodPost:
		return h.post(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		return &refusal{status: http.StatusMethodNotAllowed, text: "method not allowed"}
	}
}

// lateBody is how long net/http waits for the rest of a refused body.
const lateBody = time.Second

// refuse answers a request that reaches no session. The body may not have been read.
// net/http would wait for the rest of it, both to use the connection again and before it
// closes the connection. So refuse makes it close the connection, and limits the wait.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, since time.Time, refused *refusal) {
	h.audit(r, since, refused)
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(lateBody)) // has no effect if the writer does not support deadlines
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
	}
	http.Error(w, refused.text, refused.status)
}

// audit tells the Auditor what is refused.
func (h *Handler) audit(r *http.Request, since time.Time, refused *refusal) {
	auditor, ok := h.acceptor.(transport.Auditor)
	if !ok || web.IsNil(h.acceptor) || !auditor.Audits() {
		return
	}
	told := transport.Refusal{
		Origin: web.OriginOf(r, refused.identity), Denied: refused.status == http.StatusForbidden,
		Status: refused.status, Err: errors.New(refused.text), Since: since,
	}
	if m, err := jsonrpc.Decode(refused.frame, jsonrpc.Limits{}); err == nil {
		told.Message = &m
	}
	auditor.Refused(told)
}

// get begins a session and serves its stream.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) *refusal {
	if !web.CanFlush(w) {
		return &refusal{status: http.StatusInternalServerError, text: web.CannotFlush}
	}
	if r.ContentLength != 0 { // net/http would wait for the end of the body
		return &refusal{status: http.StatusBadRequest, text: "a GET has no body"}
	}
	acceptor, refused := h.choose(r)
	if refused != nil {
		return refused
	}
	identity := h.identify(r)
	of := web.ClientOf(identity, web.AddressOf(r))
	l := newServerLink(w, r, identity, of, h.unread, h.options.MaxFrame)
	l.acceptor = acceptor
	if !h.places.Take(of, 1) {
		return &refusal{status: http.StatusServiceUnavailable, text: "no more sessions are possible for this client now", identity: l.identity}
	}
	defer h.places.Give(of, 1)
	if !h.add(l) {
		return &refusal{status: http.StatusServiceUnavailable, text: "shutting down", identity: l.identity}
	}
	reason := transport.ErrClosed
	defer func() {
		h.remove(l)
		l.leave()
		l.end(reason, 0)
	}()
	acceptor.Accept(l)
	if !l.recv.Bound() || l.isOver() {
		return &refusal{status: http.StatusServiceUnavailable, text: "shutting down", identity: l.identity}
	}
	reason = transport.ErrPeerClosed // the reason if the ResponseWriter panics in serve
	reason = l.serve(r.Context(), h.endpointOf(r, l.id), h.options.KeepAlive)
	return nil
}

// choose returns the acceptor of a session that begins. It is asked before anything is taken for the session, so that what it
// refuses costs others nothing. POSTs do not ask: their session has its server.
func (h *Handler) choose(r *http.Request) (transport.Acceptor, *refusal) {
	if h.options.Choose == nil {
		return h.acceptor, nil
	}
	a, status, text := web.Choose(h.options.Choose, r)
	if status != 0 {
		return nil, &refusal{status: status, text: text}
	}
	return a, nil
}

func (h *Handler) identify(r *http.Request) string {
	if h.options.Identify == nil {
		return ""
	}
	return h.options.Identify(r)
}

// add adds a new session. It reports false if the handler is closed.
func (h *Handler) add(l *serverLink) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	l.id = rand.Text() // a text with 130 random bits
	h.sessions[l.id] = l
	return true
}

func (h *Handler) remove(l *serverLink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, l.id)
}

func (h *Handler) find(id string) *serverLink {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id]
}

// sessionParameter names the session in the address that clients POST to.
const sessionParameter = "sessionId"

// endpointOf returns the address that the client of a session POSTs to. The path is
// the one that the client has sent, whatever prefix middleware has stripped.
func (h *Handler) endpointOf(r *http.Request, id string) string {
	address := h.options.Endpoint
	if address == "" {
		if sent, err := url.Parse(r.RequestURI); err == nil {
			address = sent.EscapedPath()
		}
	}
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	return fmt.Sprintf("%s%s%s=%s", address, separator, sessionParameter, id)
}

// post passes one message to its session.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) *refusal {
	if problem := web.CheckBody(r.Header); problem != "" {
		return &refusal{status: http.StatusUnsupportedMediaType, text: problem}
	}
	id := r.URL.Query().Get(sessionParameter)
	l, identity := h.find(id), h.identify(r)
	switch {
	case id == "":
		return &refusal{status: http.StatusBadRequest, text: sessionParameter + " is missing: GET names the address to POST to", identity: identity}
	case l == nil:
		return &refusal{status: http.StatusNotFound, text: "session not found", identity: identity}
	case l.identity != identity:
		return &refusal{status: http.StatusForbidden, text: "the session belongs to another identity", identity: identity}
	default:
		return h.deliver(l, w, r, identity)
	}
}

// deliver delivers the message of a POST, after those that came before it.
func (h *Handler) deliver(l *serverLink, w http.ResponseWriter, r *http.Request, identity string) *refusal {
	if refused := l.enter(r.Context()); refused != nil {
		return refused.of(identity, nil)
	}
	defer l.leave()
	defer l.next()
	of := web.ClientOf(l.identity, web.AddressOf(r))
	frame, isLarge, refused := h.read(w, r, l, of)
	if isLarge {
		defer h.large.Give(of, 1)
	}
	if refused == nil {
		refused = h.pass(r.Context(), l, frame, web.OriginOf(r, identity), of)
	}
	if refused != nil {
		return refused.of(identity, frame)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// A refusal is the response to a request that was not delivered.
type refusal struct {
	status int
	text   string

	// For the Auditor.
	identity string // of the sender; "" if unknown
	frame    []byte // the message; nil if it was not read
}

// of returns the refusal of a message.
func (f *refusal) of(identity string, frame []byte) *refusal {
	return &refusal{status: f.status, text: f.text, identity: identity, frame: frame}
}
