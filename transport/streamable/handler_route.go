package streamable

import (
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	// mostHops is how often a request of a session is forwarded until a node serves it.
	mostHops = 2
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
	// Another node has sent it here, and this one will not take the session any more.
	if a.h.savings != nil && a.byNode && a.h.table.drains() {
		return misdirected("", false)
	}
	to, node := a.firstHop()
	a.tried = append(a.tried, node)
	return a.travel(to, node)
}

// travel has a request served by a node, or the next one. To is nil if it begins here.
// It ends, because hops are counted (mostHops), a node is asked only once by its name (tried), and
// nodes that contradict each other get newsPatience to agree.
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
			// The next request of the session goes there at once.
			h.owners.put(session, node)
			return refused
		}
		if owner == h.node && h.table.drains() && a.agree(owner) {
			// That node says that the session is here, where it is being freed: it is asked again.
			a.hops--
			continue
		}
		// Without a store, a session is where it began or nowhere.
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
// Only another node is told which one has it.
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
