package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Router finds the node that a request needs, so it may arrive at any node. A session
// stays on the node where it began. Requests of 2026-07-28 have no session, and are served
// where they arrive, unless they name a node: those for a task, and those that answer
// questions of a handler that waits (server.Options.Node). Implementations must be safe for
// concurrent use.
type Router interface {
	// Node returns the name of this node, which becomes part of the ids of sessions
	// that begin here. Clients can read it. It has at most 64 ASCII letters, digits,
	// hyphens and underscores. "" means that ids contain no name.
	Node() string

	// Reach returns a handler that forwards requests to the node of a session that is
	// not on this node. It returns nil if no other node has the session; the response
	// is then 404, and the client begins another session.
	//
	// The other node checks origin, host and identity itself. So the handler must
	// forward the host and the credentials of the request.
	Reach(session string) http.Handler

	// ReachNode returns a handler that forwards requests to a node, as Reach does. It
	// returns nil for a node that is not there, and for this node; the request is then
	// served here. The name is one that Node may return, but comes from the client.
	ReachNode(node string) http.Handler
}

// Nodes is a Router for a fixed set of nodes that know each other by name. It finds
// the node of a session by the name in the session id.
type Nodes struct {
	Self   string                  // the name of this node
	Others map[string]http.Handler // such as Forward to each of them
}

// Node implements Router.
func (n *Nodes) Node() string { return n.Self }

// Reach implements Router.
func (n *Nodes) Reach(session string) http.Handler { return n.Others[NodeOf(session)] }

// ReachNode implements Router.
func (n *Nodes) ReachNode(node string) http.Handler { return n.Others[node] }

// NodeOf returns the node that a session id names; "" if it names none.
func NodeOf(session string) string { return nodename.Of(session) }

// headerForwarded says that a request was already forwarded to a node.
const headerForwarded = "Mcp-Session-Forwarded"

// newSessionID returns the id for a session that begins on this node.
func (h *Handler) newSessionID() string { return nodename.Join(h.node, newSessionID()) }

// elsewhere returns a handler that forwards the request to the node of its session, or
// nil if this node serves it. A request is forwarded only once, so that nodes that
// disagree do not forward it in circles.
func (h *Handler) elsewhere(r *http.Request) http.Handler {
	session := r.Header.Get(headerSession)
	if h.options.Router == nil || session == "" || namesModern(r.Header) || r.Header.Get(headerForwarded) != "" || h.table.has(session) {
		return nil
	}
	return h.options.Router.Reach(session)
}

// forward forwards a request to another node.
func (h *Handler) forward(to http.Handler, w http.ResponseWriter, r *http.Request, expected expectedBody) *refusal {
	if r.ContentLength > int64(h.options.MaxBody) {
		return h.room.tooLarge()
	}
	r = r.Clone(r.Context())
	r.Header.Set(headerForwarded, "1")
	unlist(r.Header, headerForwarded)
	if r.Body != nil && r.ContentLength != 0 {
		w.Header().Del("Connection") // delete the header here, because another goroutine reads the body
		body := &arriving{ReadCloser: http.MaxBytesReader(w, r.Body, int64(h.options.MaxBody)), pace: newPace(expected)}
		body.returned = body.pace.begun
		defer body.leave()
		r.Body = body
	}
	to.ServeHTTP(w, r)
	return nil
}

// unlist removes the name of a header from the Connection header. Otherwise a client could
// have a proxy remove that header.
func unlist(header http.Header, name string) {
	var kept []string
	for _, value := range header["Connection"] {
		for listed := range strings.SplitSeq(value, ",") {
			if listed = strings.TrimSpace(listed); listed != "" && !strings.EqualFold(listed, name) {
				kept = append(kept, listed)
			}
		}
	}
	if header["Connection"] = kept; kept == nil {
		delete(header, "Connection")
	}
}

// An arriving body extends its deadline for each piece that arrives, and removes it when it
// has been read to the end. The time between two reads does not count, because the other
// node determines it. One goroutine reads at a time, but not the one that serves the request.
type arriving struct {
	io.ReadCloser
	arrived  int
	returned time.Time // when the last read returned

	mu   sync.Mutex
	pace pace
	left bool // the request is over, so its connection may have another one
}

func (a *arriving) Read(p []byte) (int, error) {
	a.expect()
	n, err := a.ReadCloser.Read(p)
	a.arrived, a.returned = a.arrived+n, time.Now()
	if errors.Is(err, io.EOF) {
		a.setEnd()
	}
	return n, err
}

// expect sets the deadline of the next read.
func (a *arriving) expect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.pace.pause(time.Since(a.returned))
		a.pace.allow(a.arrived)
	}
}

// setEnd removes the deadline.
func (a *arriving) setEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.pace.control.SetReadDeadline(time.Time{}) // without an effect if the writer does not support deadlines
	}
}

// leave prevents that a late read sets a deadline for the next request of the connection.
func (a *arriving) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
}

// Forward returns a handler that forwards requests to the node at a URL, for [Nodes]. It
// is a reverse proxy that keeps the host and the credentials of a request, and uses
// http.DefaultTransport.
//
// If the node refuses a connection, the response is 502. If it refuses the next one, too,
// at least a second later, the node is gone with its sessions, and the response is 404
// until a connection succeeds. So a node that only restarts its socket keeps its sessions,
// and the clients of a dead node begin new ones. Within that second, requests wait. A request
// that belongs to no session is then served by the node that should forward it.
func Forward(node *url.URL) http.Handler {
	return newForwarder(node, nil)
}

func newForwarder(node *url.URL, by http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(node)
			r.Out.Host = r.In.Host
		},
		Transport: &dials{by: by},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, errNodeGone) {
				http.Error(w, "the node of the request cannot be reached", http.StatusBadGateway)
				return
			}
			if servedHere, read := r.Context().Value(goneKey{}).(func() bool); !read || !servedHere() {
				sessionNotFound(jsonrpc.ID{}).write(w)
			}
		},
	}
}

// dialPause is the minimum time between two refused dials that show that a node is gone.
const dialPause = time.Second

var errNodeGone = errors.New("streamable: the node is gone")

// dials counts the dials to a node that were refused in a row.
type dials struct {
	by http.RoundTripper // nil: http.DefaultTransport

	mu      sync.Mutex
	refused int
	firstAt time.Time // when the first of them was refused
}

// RoundTrip implements http.RoundTripper. It returns errNodeGone for a node that is gone.
func (d *dials) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := d.pause(r.Context()); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	began := time.Now()
	response, err := cmp.Or(d.by, http.DefaultTransport).RoundTrip(r)
	if r.Context().Err() == nil && d.count(began, err) {
		return nil, fmt.Errorf("%w: %w", errNodeGone, err)
	}
	return response, err
}

// pause waits after the first refused dial, until the next one can tell whether the node
// is gone.
func (d *dials) pause(ctx context.Context) error {
	d.mu.Lock()
	first, until := d.refused == 1, d.firstAt.Add(dialPause)
	d.mu.Unlock()
	if !first {
		return nil
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count counts the result of a request, and reports whether the node is gone. Dials that
// began before the pause was over are part of the first one.
func (d *dials) count(began time.Time, err error) (gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !isRefused(err):
		d.refused = 0
	case d.refused == 0:
		d.refused, d.firstAt = 1, time.Now()
	case began.Sub(d.firstAt) >= dialPause:
		d.refused = maxFailedDials
	}
	return d.refused >= maxFailedDials
}

// isRefused reports whether a machine has refused a connection.
func isRefused(err error) bool {
	const onWindows = syscall.Errno(10061) // WSAECONNREFUSED, which package syscall does not declare
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, onWindows)
}
