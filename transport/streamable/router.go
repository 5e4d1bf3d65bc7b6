package streamable

import (
	"maps"
	"net/http"
	"sync"

	"github.com/bowline-mcp/bowline/internal/nodename"
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

// mostOwners is how many sessions that have moved are remembered.
const mostOwners = 64 << 10

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
