package cluster

import "time"

// A State says how a Node stands to its cluster.
type State string

const (
	// Ready: the Engine can be reached, and the lease is held.
	Ready State = "ready"

	// Degraded: the Engine cannot be reached. Sessions are served on, and are not saved.
	// Servers that run on this node alone go on for 17 s after the last renewal of
	// their leases.
	Degraded State = "degraded"

	// Isolated: the lease is lost. Sessions are served on, but other nodes may take them.
	// Nothing that only one node may run runs here. The Node makes the lease again as soon
	// as it can reach the Engine.
	Isolated State = "isolated"

	// Closed: Close was called.
	Closed State = "closed"
)

// State returns the state of the Node, and a channel that is closed when it changes.
func (n *Node) State() (State, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assess()
	return n.state, n.changed.Next()
}

// assess brings the state up to date. The caller holds n.mu.
func (n *Node) assess() {
	if n.ctx.Err() != nil {
		return
	}
	connected, _ := n.engine.Connected()
	lease := n.table[n.leaseKey()]
	switch {
	case lease == nil || !lease.hold.held(n.clock()):
		n.setState(Isolated)
	case !connected || lease.hold.failing:
		n.setState(Degraded)
	default:
		n.setState(Ready)
	}
}

// setState changes the state. The caller holds n.mu.
func (n *Node) setState(to State) {
	if to == n.state {
		return
	}
	n.log.Info("cluster: the node is "+string(to), "was", string(n.state))
	switch Isolated {
	case n.state:
		n.leaseSince = n.clock()
	case to:
		n.hasLapsed = true
	}
	n.state = to
	n.changed.Announce()
}

// hasReturned reports whether the node had lost its lease, and had it again within the last d. Other nodes that had lost theirs, as
// when the Engine was away from all, may still be on their way.
func (n *Node) hasReturned(d time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assess()
	return n.hasLapsed && (n.state == Isolated || n.clock()-n.leaseSince < d)
}
