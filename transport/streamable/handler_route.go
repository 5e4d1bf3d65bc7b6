package streamable

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Router finds the node of a session, so a request may arrive at any node. A
// session stays on the node where it began. Requests of 2026-07-28 have no session,
// and are served where they arrive. Implementations must be safe for concurrent use.
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
}

// Nodes is a Router for a fixed set of nodes that know each other by name. It finds
// the node of a session by the name in the session id.
type Nodes struct {
	Self   string                  // the name of this node
	Others map[string]http.Handler // such as a *httputil.ReverseProxy to each of them
}

// Node implements Router.
func (n *Nodes) Node() string { return n.Self }

// Reach implements Router.
func (n *Nodes) Reach(session string) http.Handler { return n.Others[NodeOf(session)] }

// NodeOf returns the node that a session id names; "" if it names none.
func NodeOf(session string) string {
	node, _, named := strings.Cut(session, nodeMark)
	if !named {
		return ""
	}
	return node
}

const (
	// nodeMark separates the name of the node from the rest of a session id. Neither
	// contains it.
	nodeMark = "."

	maxNode = 64

	// headerForwarded says that a request was already forwarded to a node.
	headerForwarded = "Mcp-Session-Forwarded"
)

func checkNode(node string) error {
	plain := strings.IndexFunc(node, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}) < 0
	if !plain || len(node) > maxNode {
		return fmt.Errorf("streamable: %.80q cannot name a node", node)
	}
	return nil
}

// newSessionID returns the id for a session that begins on this node.
func (h *Handler) newSessionID() string {
	if h.node == "" {
		return newSessionID()
	}
	return h.node + nodeMark + newSessionID()
}

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
