package streamable

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// HandlerOptions are the bounds of a Handler. The zero value is the default.
type HandlerOptions struct {
	// AllowedOrigins are the values of Origin, such as
	// "https://app.example.com", from which a browser may send requests,
	// beyond the server's own. A request without an Origin comes from no page.
	//
	// The server's own is the Host of the request, with https over TLS, and with
	// http when that is localhost, a loopback address, or one of AllowedHosts.
	// Behind a proxy that ends TLS, the server does not see that a page came by
	// https: its origin has to be listed here.
	//
	// A page of another origin needs CORS as well, which the program puts in
	// front of the Handler: OPTIONS is answered here with 405, and
	// Mcp-Session-Id has to be exposed.
	AllowedOrigins []string

	// AllowedHosts are the names, with or without a port, by which the server
	// may be called, beyond localhost and any loopback address. All else is
	// taken for DNS rebinding. Without any, only requests that come in on a
	// loopback address are looked at for it.
	AllowedHosts []string

	// Choose returns the acceptor that a request is for: of a session that the
	// request begins, or of a message without a session. Nil, also a nil pointer,
	// is answered with 404. Acceptors are compared with ==, so return the same
	// pointer for the same server. A request that names a session is not asked
	// about: the session stays with its acceptor. Default: the acceptor given to
	// NewHandler.
	Choose func(*http.Request) Acceptor

	// Identify returns the key of who sends a request, as the program's own
	// authentication has established it, or "" for nobody. It becomes
	// transport.Origin.Identity. A session belongs to the identity that began it:
	// a request of another identity is answered with 403. Nil: nobody has one.
	Identify func(*http.Request) string

	MaxFrame    int           // bytes of one frame, either way; default 16 MiB
	MaxSessions int           // sessions at a time; default 10,000
	SessionIdle time.Duration // life of a session without exchange or GET stream; default 30 min
	MaxHeld     int           // bytes of POST bodies not yet delivered; beyond, POSTs wait, 30 s at most; default 256 MiB
	KeepAlive   time.Duration // silence after which an event stream gets a comment; default 15 s
}

func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxFrame = cmp.Or(max(o.MaxFrame, 0), 16<<20)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 10_000)
	o.SessionIdle = cmp.Or(max(o.SessionIdle, 0), 30*time.Minute)
	o.MaxHeld = cmp.Or(max(o.MaxHeld, 0), 256<<20)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 15*time.Second)
	return o
}

// A Handler serves one MCP endpoint over Streamable HTTP, in every revision.
// It is an http.Handler, safe for concurrent use.
//
// Each session of the revisions that begin with initialize is a link. All
// messages of the revisions without a session share one link, on which a
// client that leaves its request is a lost stream: StreamLost with
// ErrPeerClosed. A session outlives the connections of its client. It ends by
// DELETE (ErrPeerClosed), when it was idle for too long (ErrSessionExpired),
// when it makes room for a new one, being the one idle longest
// (ErrSessionExpired), or by Close. When all MaxSessions are busy, a new one is
// refused with 503.
//
// All writing is done by the goroutines of net/http. A link has none of its
// own; an idle session costs a few hundred bytes. A client that takes less than
// 64 KiB in 30 s of what is written to it is cut off, and so is one that sends
// its body more slowly than 64 KiB/s, after as long.
//
// The GET stream of a session queues at most 256 frames or 16 MiB (one frame
// always fits), and is then busy. An answer queues at most 16,384 frames or
// 16 MiB, and its last frame beyond. It is never busy, since those that share
// the link would wait for its client: when there is one frame too many, the
// response is ended, Send says ErrNoRoute, and the stream is lost with
// ErrNotReading, in every revision.
//
// A stream of events needs a ResponseWriter that can flush, as
// http.ResponseController does it; without, such an answer is refused with 500.
type Handler struct {
	acceptor Acceptor
	options  HandlerOptions
	held     budget // bytes of bodies that are held
	sessions sessions
	making   sync.Mutex // the stateless link

	once    sync.Once
	stopped chan struct{} // Close was called
}

// An Acceptor serves links; a *server.Server is one.
type Acceptor interface {
	// Accept serves a link and does not wait for its end. It binds the link before
	// it returns, or closes it; then the request that began the link is refused
	// with 503. The acceptor closes the link once it is lost.
	Accept(link transport.Link)

	// Close ends what the acceptor serves, and waits for it.
	Close(ctx context.Context) error
}

// NewHandler returns a handler that gives each new link to an acceptor, in the
// goroutine of the request that began the link.
func NewHandler(a Acceptor, o HandlerOptions) *Handler {
	h := &Handler{acceptor: a, options: o.withDefaults(), stopped: make(chan struct{})}
	h.held.free = h.options.MaxHeld
	h.sessions.byID = make(map[string]*serverSession)
	h.sessions.shared = make(map[Acceptor]*serverSession)
	h.sessions.limit, h.sessions.idleLimit = h.options.MaxSessions, h.options.SessionIdle
	return h
}

// Close ends all links, each as its own Close would within the grace, and
// refuses new requests with 503. Later calls wait for the first, and a shorter
// grace shortens it. The error names what was left behind.
//
// http.Server.Shutdown waits for every GET stream, and does not end one: call
// Close before it, or have http.Server.RegisterOnShutdown call it.
func (h *Handler) Close(grace time.Duration) error {
	h.once.Do(func() { close(h.stopped) })
	var group sync.WaitGroup
	busy, idle := h.sessions.close()
	left := make([]error, len(busy)+len(idle))
	for i, s := range busy {
		group.Go(func() { left[i] = s.Close(grace) })
	}
	for i, s := range idle {
		left[len(busy)+i] = s.Close(grace)
	}
	group.Wait()
	h.sessions.expiring.Wait()
	return errors.Join(left...)
}

// ServeHTTP answers one request. It returns when its response is complete.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refused := h.serve(w, r); refused != nil {
		refused.write(w)
	}
}

// serve returns why it has answered nothing.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *refusal {
	expectBody(w, r)
	if refused := h.admit(r); refused != nil {
		return refused
	}
	switch r.Method {
	case http.MethodPost:
		return h.post(w, r)
	case http.MethodGet:
		return h.get(w, r)
	case http.MethodDelete:
		return h.delete(w, r)
	default:
		return notAllowed("GET, POST, DELETE")
	}
}

func (h *Handler) post(w http.ResponseWriter, r *http.Request) *refusal {
	if refused := checkMediaTypes(r.Header); refused != nil {
		return refused
	}
	p, refused := h.receive(w, r)
	if refused != nil {
		return refused
	}
	defer p.release()
	if p.modern() || namesModern(r.Header) {
		return h.postModern(w, r, p)
	}
	return h.postLegacy(w, r, p)
}

// choose returns the acceptor of a request that no session decides.
func (h *Handler) choose(r *http.Request, id jsonrpc.ID) (Acceptor, *refusal) {
	if h.options.Choose == nil {
		return h.acceptor, nil
	}
	a := h.options.Choose(r)
	if v := reflect.ValueOf(a); a == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &refusal{status: http.StatusNotFound, code: jsonrpc.CodeInvalidRequest, id: id, text: "there is no such server"}
	}
	return a, nil
}

// begin makes a link and has it accepted. It is then in use by the caller, who
// has to leave it.
func (h *Handler) begin(s *serverSession) *refusal {
	bound := false
	defer func() {
		if !bound {
			s.end(transport.ErrClosed, 0)
		}
	}()
	s.acceptor.Accept(s)
	if bound = s.to.Bound() && h.sessions.enter(s); !bound {
		return shuttingDown(jsonrpc.ID{})
	}
	return nil
}
