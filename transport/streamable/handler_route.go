package streamable

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/wait"
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
func (a *arrival) isAway() bool {
	return a.session != "" && (a.h.options.Router != nil || a.h.savings != nil) && !a.namesModern && !a.h.table.has(a.session)
}

// A journey is what a request remembers on its way to the node that serves it. Its zero value is that of a request which has been served
// where it came, as most are.
type journey struct {
	travels  bool      // the session was not here when the request came, or this node is shutting down
	received *body     // the body, if it was read on the way
	checked  bool      // a node has checked the request
	unknown  bool      // no node has the session
	hops     int       // how often the request was forwarded
	until    time.Time // how long it waits until nodes agree; zero: it has not waited
	tried    []string  // the nodes that were asked by their name; may contain ""
}

// arrives gives up the body.
func (j *journey) arrives() {
	if j.received != nil {
		j.received.release()
	}
}

// route has a request served by the node that has its session: the one where the session began
// or was found last, or the one that this node names, or this one, which then takes the session
// from the store. If the store names another node, that one is asked, too. If this node is shutting
// down, another one takes its place.
func (a *arrival) route() *refusal {
	a.travels = true
	defer a.arrives()
	if a.h.savings != nil && a.byNode && a.h.table.drains() {
		return misdirected("", false)
	}
	to, node := a.firstHop()
	a.tried = append(a.tried, node)
	return a.travel(to, node)
}

// travel has a request served by a node, or the next one. To is nil if it begins here.
func (a *arrival) travel(to http.Handler, node string) *refusal {
	h, session := a.h, a.session
	for {
		if to == nil {
			to, node = a.another()
		}
		if to == nil {
			if wait.IsClosed(h.stopped) {
				return a.closed()
			}
			refused := a.serveHere()
			if refused == nil || refused.owner == "" {
				return refused
			}
			if to, node = a.nextHop(refused.owner), refused.owner; to == nil && !a.agree(node) {
				return a.notHere(refused)
			}
			continue
		}
		served, owner, refused := a.hop(to)
		if served {
			h.owners.put(session, node)
			return refused
		}
		if owner == h.node && h.table.drains() && a.agree(owner) {
			a.hops--
			continue
		}
		if h.owners.drop(session); h.savings == nil {
			return sessionNotFound(jsonrpc.ID{})
		}
		to, node = a.nextHop(owner), owner
	}
}

// firstHop returns a handler that forwards a request to the node where its session should be,
// and the name of that node if the session is not where it began. It returns nil if this node
// serves the request. Nodes that disagree must not forward a request in circles, so a request
// that was forwarded goes no further, unless a node names another.
func (a *arrival) firstHop() (to http.Handler, node string) {
	h, session := a.h, a.session
	if session == "" || h.options.Router == nil || a.wasForwarded() || h.restores.has(session) {
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
func (a *arrival) nextHop(node string) http.Handler {
	if node == "" || node == a.h.node || a.h.options.Router == nil || a.wasForwarded() || a.hops >= mostHops || slices.Contains(a.tried, node) {
		return nil
	}
	a.tried = append(a.tried, node)
	return a.h.options.Router.ReachNode(node)
}

// notHere refuses a request whose session is at a node to which this one does not forward it.
func (a *arrival) notHere(refused *refusal) *refusal {
	switch {
	case a.byNode:
		return misdirected(refused.owner, a.checked)
	case a.wasForwarded():
		return sessionNotFound(jsonrpc.ID{})
	default:
		return refused
	}
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
