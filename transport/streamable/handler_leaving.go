package streamable

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
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
func (a *arrival) leaves() bool {
	if h := a.h; h.savings == nil || h.options.Router == nil || a.kind == get || !h.table.drains() {
		return false
	}
	return a.byNode || !a.wasForwarded() && a.h.options.Router.Another(a.session) != ""
}

// While a node shuts down, a request must neither be lost nor executed twice. What belongs to a call
// that is under way can only be served here, so it is; anything else waits until the session is free,
// and goes to the node that can take it.

// moveOn serves a POST that came while this node shuts down, and whose session, if it has one, is still
// here. What belongs to a call that is under way is served here. Anything else another node serves,
// when the session has no more calls under way. Who the sender is, that node checks.
func (a *arrival) moveOn() (refused *refusal) {
	if a.byNode && !a.isShort() { // the node has not kept the body
		return a.serveHere()
	}
	a.travels = true
	defer a.arrives()
	if a.received, refused = a.receive(); refused != nil {
		return refused
	}
	if a.staysHere() {
		return a.serveHere()
	}
	if l := a.h.table.lookup(a.session); l != nil {
		if l.saved == nil { // it ends with this process
			return a.serveHere()
		}
		ctx, cancel := context.WithTimeout(a.ctx(), restorePatience)
		defer cancel()
		// It ends when its last call has its answer.
		if !l.ended(ctx) {
			return moving(a.received.requestID())
		}
	}
	if a.byNode {
		return misdirected("", false)
	}
	return a.travel(nil, "")
}

// staysHere reports whether a body belongs to what is under way on this node, or cannot be read.
// Notifications and responses do, and requests that name a call or task of a node.
func (a *arrival) staysHere() bool {
	b := a.received
	if b.decode() != nil {
		return true
	}
	if b.batch {
		defer func() { b.operations = nil }() // they are read again
		if b.decodeBatch() != nil {
			return true
		}
	}
	return !b.isRequest || nodeOf(b) != ""
}

// ended waits until a link has ended. It reports false if ctx ends before.
func (l *serverLink) ended(ctx context.Context) bool {
	select {
	case <-l.untilClosing():
	case <-ctx.Done():
		return false
	}
	// The link has begun to end, so this ends nothing: it returns how it ends.
	ending, _ := l.beginEnd(transport.ErrClosed)
	select {
	case <-ending.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// another returns a handler that forwards a request to another node, because this one is shutting
// down, and the name of that node; nil if there is none that was not asked.
func (a *arrival) another() (to http.Handler, node string) {
	if a.hops >= mostHops || a.byNode || !a.leaves() {
		return nil, ""
	}
	if node = a.h.options.Router.Another(a.session, a.tried...); node == "" {
		return nil, ""
	}
	a.tried = append(a.tried, node)
	a.w.Header().Set("Connection", "close")
	return a.h.options.Router.ReachNode(node), node
}

// agree waits a moment if two nodes contradict each other: the first says that another one has the
// session of a request, which says that it has not. It reports false if they do so for too long.
func (a *arrival) agree(owner string) bool {
	if a.h.savings == nil || owner != a.h.node && !slices.Contains(a.tried, owner) {
		return false
	}
	now := time.Now()
	if a.until.IsZero() {
		a.until = now.Add(newsPatience)
	}
	return now.Before(a.until) && !wait.IsClosed(a.ctx().Done()) && wait.Sleep(a.ctx(), newsPause) == nil
}

// closed refuses a request because Close was called.
func (a *arrival) closed() *refusal {
	if a.h.savings != nil && a.byNode {
		return misdirected("", false)
	}
	return shuttingDown(jsonrpc.ID{})
}
