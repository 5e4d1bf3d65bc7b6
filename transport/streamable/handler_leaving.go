package streamable

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/pause"
	"github.com/bowline-mcp/bowline/internal/signal"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// newsPatience is how long a request waits for what two nodes say about a session to agree: what
	// one of them has freed may not be known to the other one yet.
	newsPatience = time.Second
	newsPause    = 20 * time.Millisecond
)

// leaves reports whether another node serves what comes now, because this one is shutting down: it
// shares its sessions, and there is such a node, such as the one that has forwarded the request. A
// GET stream would keep this node from ending; its client comes back.
func (h *Handler) leaves(r *http.Request) bool {
	if h.savings == nil || h.options.Router == nil || r.Method == http.MethodGet || !h.table.drains() {
		return false
	}
	return isByNode(r) || !wasForwarded(r) && h.options.Router.Another(r.Header.Get(headerSession)) != ""
}

// leave serves a POST that came while this node shuts down, and whose session, if it has one, is still
// here. What belongs to a call that is under way is served here. Anything else another node serves,
// when the session has no more calls under way. Who the sender is, that node checks.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request, expected expectedBody) (refused *refusal) {
	if isByNode(r) && (r.ContentLength < 0 || r.ContentLength > web.SmallBody) { // the node has not kept the body
		return h.serveHere(w, r, expected, nil)
	}
	t := &trip{w: w, r: r, expected: expected}
	defer t.release()
	if t.body, refused = h.room.receive(t.w, t.r, t.expected, web.ClientOf("", web.AddressOf(t.r))); refused != nil {
		return refused
	}
	if t.staysHere() {
		return h.serveHere(t.w, t.r, t.expected, t)
	}
	if l := h.table.lookup(t.r.Header.Get(headerSession)); l != nil {
		if l.saved == nil { // it ends with this process
			return h.serveHere(t.w, t.r, t.expected, t)
		}
		ctx, cancel := context.WithTimeout(t.r.Context(), restorePatience)
		defer cancel()
		if !l.ended(ctx) {
			return moving(t.body.requestID())
		}
	}
	if isByNode(r) {
		return misdirected("", false)
	}
	return h.travel(t, nil, "")
}

// staysHere reports whether a body belongs to what is under way on this node, or cannot be read.
func (t *trip) staysHere() bool {
	b := t.body
	if b.decode() != nil {
		return true
	}
	if b.batch {
		defer func() { b.operations = nil }() // they are read again
		if b.decodeBatch() != nil {
			return true
		}
	}
	return !b.asks || nodeOf(b) != ""
}

// ended waits until a link has ended. It reports false if ctx ends before.
func (l *serverLink) ended(ctx context.Context) bool {
	select {
	case <-l.untilClosing():
	case <-ctx.Done():
		return false
	}
	ending, _ := l.beginEnd(transport.ErrClosed) // it has begun to end
	select {
	case <-ending.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// another returns a handler that forwards a request to another node, because this one is shutting
// down, and the name of that node; nil if there is none that was not asked.
func (h *Handler) another(t *trip) (to http.Handler, node string) {
	if t.hops >= mostHops || isByNode(t.r) || !h.leaves(t.r) {
		return nil, ""
	}
	if node = h.options.Router.Another(t.r.Header.Get(headerSession), t.tried...); node == "" {
		return nil, ""
	}
	t.tried = append(t.tried, node)
	t.w.Header().Set("Connection", "close")
	return h.options.Router.ReachNode(node), node
}

// agree waits a moment if two nodes contradict each other: the first says that another one has the
// session of a request, which says that it has not. It reports false if they do so for too long.
func (h *Handler) agree(t *trip, owner string) bool {
	if h.savings == nil || owner != h.node && !slices.Contains(t.tried, owner) {
		return false
	}
	now := time.Now()
	if t.until.IsZero() {
		t.until = now.Add(newsPatience)
	}
	return now.Before(t.until) && !signal.IsClosed(t.r.Context().Done()) && pause.For(t.r.Context(), newsPause) == nil
}

// closed refuses a request because Close was called.
func (h *Handler) closed(r *http.Request) *refusal {
	if h.savings != nil && isByNode(r) {
		return misdirected("", false)
	}
	return shuttingDown(jsonrpc.ID{})
}
