package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Member is a node of the cluster, as its lease describes it.
type Member struct {
	Name        string            `json:"name"`
	Epoch       string            `json:"epoch"`                 // another one after each start of the process
	Address     string            `json:"address,omitempty"`     // where other nodes reach it; "" if they cannot
	Certificate []byte            `json:"certificate,omitempty"` // the SHA-256 hash of the public key that it shows there
	Version     string            `json:"version,omitempty"`     // Options.Version
	Labels      map[string]string `json:"labels,omitempty"`      // Options.Labels; do not change it
	Draining    bool              `json:"draining,omitempty"`    // it takes no new work
	Since       time.Time         `json:"since"`                 // when it started, by its own clock

	term      uint64
	challenge string
}

// An otherClaim is the value of a key that a node has claimed.
type otherClaim struct {
	owner    owner // its term is 0
	data     []byte
	revision uint64
}

// Member returns a node that has a lease as far as known here, or this node.
func (n *Node) Member(name string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == n.options.Node {
		return n.ownMember(), true
	}
	m, found := n.members[name]
	return m, found
}

// Members returns all nodes that have a lease as far as known here, and this node, by name.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := append(slices.Collect(maps.Values(n.members)), n.ownMember())
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ownMember describes this node. The caller holds n.mu.
func (n *Node) ownMember() Member {
	return Member{
		Name: n.options.Node, Epoch: n.epoch, Address: n.address, Certificate: n.spki, Version: n.options.Version,
		Labels: n.options.Labels, Draining: n.draining, Since: n.since, term: n.term,
	}
}

// Gone reports whether no process is the node with this name any more, for certain: its lease
// has ended. A name that was never seen is gone once it was looked for for 20 s, so the first
// calls return false. So do all calls while this node is Isolated.
func (n *Node) Gone(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view.gone(n.clock(), n.holding(), name)
}

// judge says whether the owner of something lives. What an owner that is dead has owned may
// be taken, by a write that replaces exactly what was read before judge was called.
func (n *Node) judge(o owner) verdict {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view.judge(n.clock(), n.holding(), o)
}

// holding reports whether this node holds its own lease. The caller holds n.mu.
func (n *Node) holding() bool {
	e := n.table[n.leaseKey()]
	return e != nil && e.hold.held(n.clock())
}

// refused says that the door of a node has refused a connection, which only a process that
// has ended does, or a network between. It asks the control subject of the node: if nobody
// answers there either, the process has ended. The next renewal of its lease refutes that, if
// there is one. It returns the verdict.
func (n *Node) refused(ctx context.Context, o owner) verdict {
	if err := n.ask(ctx, o.Node, opPing, nil, nil); errors.Is(err, ErrNoResponder) {
		n.mu.Lock()
		n.view.deny(o)
		if s := n.view.nodes[o.Node]; s != nil && !s.present() {
			delete(n.members, o.Node)
		}
		n.mu.Unlock()
		n.hooks.leaseChanged(nodePrefix + o.Node)
	}
	return n.judge(o)
}

// holder returns which node has claimed a key, as far as known here, and the value of the claim.
func (n *Node) holder(key string) (by owner, value []byte, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, found := n.others[key]
	return c.owner, c.data, found
}

// follow applies what the bucket of leases shows, until the node is closed.
func (n *Node) follow() {
	current := false
	for e := range n.leases.Watch(n.ctx, "") {
		if e.Current {
			if !current {
				close(n.current)
			}
			current = true
			continue
		}
		n.apply(e)
		n.hooks.leaseChanged(e.Key)
	}
}

func (n *Node) apply(e Entry) {
	name, isNode := strings.CutPrefix(e.Key, nodePrefix)
	var lease leaseRecord
	var claim claimRecord
	var err error
	switch {
	case e.Deleted:
	case isNode:
		lease, err = n.openLease(e.Key, e.Value)
	default:
		claim, err = n.openClaim(e.Key, e.Value)
	}
	if err != nil {
		n.log.Warn("cluster: a lease cannot be read: another key or version", "key", e.Key, "err", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applyOwn(e, lease, claim)
	switch {
	case isNode && name != n.options.Node:
		n.applyMember(name, e, lease, err)
	case !isNode && (e.Deleted || err != nil):
		delete(n.others, e.Key)
	case !isNode:
		n.others[e.Key] = otherClaim{owner{Node: claim.Node, Epoch: claim.Epoch}, claim.Data, e.Revision}
	}
}

// applyOwn applies a change of a key that this node holds. The caller holds n.mu.
func (n *Node) applyOwn(e Entry, lease leaseRecord, claim claimRecord) {
	held := n.table[e.Key]
	if held == nil {
		return
	}
	now, what := n.clock(), foreign
	switch {
	case e.Deleted:
		what = nothing
	case held.number == 0 && lease.Epoch == n.epoch, held.number != 0 && claim.Epoch == n.epoch && claim.Number == held.number:
		what = own
	}
	if what == own && held.number == 0 {
		n.view.showOwn(e.Revision)
	}
	if held.hold.shown(now, what, e.Revision) {
		n.vanished(held, now)
	}
	n.poke()
}

// applyMember applies a change of another node's lease. The caller holds n.mu.
func (n *Node) applyMember(name string, e Entry, lease leaseRecord, err error) {
	switch {
	case e.Deleted:
		n.view.hide(n.clock(), name, e.Revision)
	case err != nil:
		n.view.show(name, nil, e.Revision)
	default:
		n.view.show(name, &owner{name, lease.Epoch, lease.Term}, e.Revision)
	}
	if s := n.view.nodes[name]; s == nil || !s.present() {
		delete(n.members, name)
	} else if !e.Deleted {
		n.members[name] = Member{
			Name: name, Epoch: lease.Epoch, Address: lease.Address, Certificate: lease.Certificate, Version: lease.Program,
			Labels: lease.Labels, Draining: lease.Draining, Since: lease.Since, term: lease.Term, challenge: lease.Challenge,
		}
	}
}

func (n *Node) openLease(key string, sealed []byte) (leaseRecord, error) {
	var r leaseRecord
	plain, err := n.open(sealLease, leaseBucket+"/"+key, sealed)
	if err == nil {
		err = decodeRecord(plain, &r)
	}
	return r, err
}
