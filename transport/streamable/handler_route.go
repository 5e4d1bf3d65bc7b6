package streamable

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/signal"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
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

	// Another returns the name of a node that can serve a request now, because this one is
	// shutting down: none that was tried, and not this one. All nodes should name the same
	// one for a session, which may be "". It returns "" if there is none; the response is then
	// 503. A Handler calls it only if it has HandlerOptions.Sessions.
	Another(session string, tried ...string) string
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

// Another implements Router.
func (n *Nodes) Another(session string, tried ...string) string {
	return nodename.Choose(session, maps.Keys(n.Others), tried)
}

// NodeOf returns the node that a session id names; "" if it names none.
func NodeOf(session string) string { return nodename.Of(session) }

// newSessionID returns the id for a session that begins on this node.
func (h *Handler) newSessionID() string { return nodename.Join(h.node, newSessionID()) }

const (
	// mostHops is how often a request of a session is forwarded until a node serves it.
	mostHops = 2

	// mostOwners is how many sessions that have moved are remembered.
	mostOwners = 64 << 10
)

// isAway reports whether a request belongs to a session that is not here.
func (h *Handler) isAway(r *http.Request) bool {
	session := r.Header.Get(headerSession)
	return session != "" && (h.options.Router != nil || h.savings != nil) && !namesModern(r.Header) && !h.table.has(session)
}

// A trip is a request of a session that is not here, on its way to the node that serves it.
type trip struct {
	w        http.ResponseWriter
	r        *http.Request
	expected expectedBody
	body     *body             // the body, if it was read
	origin   *transport.Origin // the sender, if it was established
	checked  bool              // a node has checked the request
	unknown  bool              // no node has the session
	hops     int               // how often the request was forwarded
	until    time.Time         // how long it waits until nodes agree; zero: it has not waited
	tried    []string          // the nodes that were asked by their name; may contain ""
}

// release gives up the body.
func (t *trip) release() {
	if t.body != nil {
		t.body.release()
	}
}

// route has a request served by the node that has its session: the one where the session began
// or was found last, or the one that this node names, or this one, which then takes the session
// from the store. If the store names another node, that one is asked, too. If this node is shutting
// down, another one takes its place.
func (h *Handler) route(w http.ResponseWriter, r *http.Request, expected expectedBody) *refusal {
	t := &trip{w: w, r: r, expected: expected}
	defer t.release()
	if h.savings != nil && isByNode(t.r) && h.table.drains() {
		return misdirected("", false)
	}
	to, node := h.firstHop(t.r)
	t.tried = append(t.tried, node)
	return h.travel(t, to, node)
}

// travel has a request served by a node, or the next one. To is nil if it begins here.
func (h *Handler) travel(t *trip, to http.Handler, node string) *refusal {
	session := t.r.Header.Get(headerSession)
	for {
		if to == nil {
			to, node = h.another(t)
		}
		if to == nil {
			if signal.IsClosed(h.stopped) {
				return h.closed(t.r)
			}
			refused := h.serveHere(t.w, t.r, t.expected, t)
			if refused == nil || refused.owner == "" {
				return refused
			}
			if to, node = h.nextHop(t, refused.owner), refused.owner; to == nil && !h.agree(t, node) {
				return notHere(t, refused)
			}
			continue
		}
		served, owner, refused := h.hop(t, to)
		if served {
			h.owners.put(session, node)
			return refused
		}
		if owner == h.node && h.table.drains() && h.agree(t, owner) {
			t.hops--
			continue
		}
		if h.owners.drop(session); h.savings == nil {
			return sessionNotFound(jsonrpc.ID{})
		}
		to, node = h.nextHop(t, owner), owner
	}
}

// firstHop returns a handler that forwards a request to the node where its session should be,
// and the name of that node if the session is not where it began. It returns nil if this node
// serves the request. Nodes that disagree must not forward a request in circles, so a request
// that was forwarded goes no further, unless a node names another.
func (h *Handler) firstHop(r *http.Request) (to http.Handler, node string) {
	session := r.Header.Get(headerSession)
	if session == "" || h.options.Router == nil || wasForwarded(r) || h.restores.has(session) {
		return nil, ""
	}
	if node := h.owners.get(session); node != "" {
		if to := h.options.Router.ReachNode(node); to != nil {
			return to, node
		}
		h.owners.drop(session)
	}
	return h.options.Router.Reach(session), ""
}

// nextHop returns a handler that forwards a request to a node that was named as the owner of its
// session, or nil if the request cannot go there, or has come far enough.
func (h *Handler) nextHop(t *trip, node string) http.Handler {
	if node == "" || node == h.node || h.options.Router == nil || wasForwarded(t.r) || t.hops >= mostHops || slices.Contains(t.tried, node) {
		return nil
	}
	t.tried = append(t.tried, node)
	return h.options.Router.ReachNode(node)
}

// notHere refuses a request whose session is at a node to which this one does not forward it.
func notHere(t *trip, refused *refusal) *refusal {
	switch {
	case isByNode(t.r):
		return misdirected(refused.owner, t.checked)
	case wasForwarded(t.r):
		return sessionNotFound(jsonrpc.ID{})
	default:
		return refused
	}
}

// arrive establishes the sender of a request, and makes sure that its session is here if it can
// be. T is nil if that is nothing to look after.
func (h *Handler) arrive(r *http.Request, t *trip) (*transport.Origin, *refusal) {
	if t == nil {
		return h.originOf(r)
	}
	if t.origin == nil { // a sender may prove who it is only once for each request
		if t.checked {
			r = r.WithContext(context.WithValue(r.Context(), checkedKey{}, checkedKey{}))
		}
		origin, refused := h.originOf(r)
		if refused != nil {
			return nil, refused
		}
		t.origin, t.checked = origin, true
	}
	if h.savings == nil || !h.isAway(r) {
		return t.origin, nil
	}
	refused := h.restore(r, t.origin)
	if t.unknown = refused != nil && refused.unknown; t.unknown {
		return t.origin, nil // it is refused when its body was read, as without a store
	}
	return t.origin, refused
}

// owners are the nodes of sessions that are not where they began, as far as this node has
// learned it. The zero value is empty.
type owners struct {
	mu sync.Mutex
	of map[string]string
}

// get returns the node of a session; "" if unknown.
func (o *owners) get(session string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[session]
}

// put notes the node of a session, unless it is "". If there are too many, another session is
// forgotten.
func (o *owners) put(session, node string) {
	if node == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[string]string)
	}
	if _, known := o.of[session]; !known && len(o.of) >= mostOwners {
		for other := range o.of {
			delete(o.of, other)
			break
		}
	}
	o.of[session] = node
}

func (o *owners) drop(session string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, session)
}
