package cluster

import (
	"bytes"
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
	owner  owner // its term is 0
	number uint64
	data   []byte
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
		Labels: n.options.Labels, Draining: n.draining, Since: n.since, term: n.term(),
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

// refused says that the door of a process is not there any more, as happens when it has ended. It
// asks the control subject of that process: if nobody answers there either, the process counts
// as ended, unless a renewal of its lease comes later. It returns the verdict. Nothing is remembered
// of a process that the view does not see: it may be an earlier one, or the view is old.
func (n *Node) refused(ctx context.Context, o owner) verdict {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	m, _ := n.Member(o.Node)
	if _, err := n.askProcess(ctx, o, m.challenge, opPing, nil); errors.Is(err, ErrNoResponder) {
		n.mu.Lock()
		seen, holding := n.view.deny(o), n.holding()
		if s := n.view.nodes[o.Node]; s != nil && !s.present() {
			delete(n.members, o.Node)
		}
		n.mu.Unlock()
		if !seen && holding {
			return dead
		}
		n.hooks.leaseChanged(nodePrefix + o.Node)
	}
	return n.judge(o)
}

// owner returns the process as an owner.
func (m Member) owner() owner { return owner{m.Name, m.Epoch, m.term} }

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
		switch {
		case !e.Current:
			if n.apply(e) {
				n.hooks.leaseChanged(e.Key)
			}
		case !current:
			close(n.current)
			current = true
		}
	}
	if !current { // the Engine was closed
		close(n.current)
	}
}

// apply applies a change, and reports whether more has changed than a renewal changes.
func (n *Node) apply(e Entry) (changed bool) {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note(e.Key, err)
	n.applyOwn(e, cmp.Or(lease.Epoch, claim.Epoch))
	if isNode {
		return name != n.options.Node && n.applyMember(name, e, lease, err)
	}
	return n.applyClaim(e, claim, err)
}

// note logs a value that cannot be read, once. The caller holds n.mu.
func (n *Node) note(key string, err error) {
	if err == nil {
		delete(n.unread, key)
		return
	}
	if n.unread[key] == nil {
		n.log.Warn("cluster: a lease cannot be read, and is left alone: its node has another key or another version", "key", key, "err", err)
	}
	n.unread[key] = err
}

// applyOwn applies a change of a key that this node holds. The caller holds n.mu.
func (n *Node) applyOwn(e Entry, epoch string) {
	held := n.table[e.Key]
	if held == nil || epoch == n.epoch && e.Revision < held.hold.revision {
		return // an older value of this node says nothing
	}
	now, what := n.clock(), foreign
	n.expire(held, now)
	switch {
	case e.Deleted:
		what = nothing
	case held.wrote(e.Value):
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
func (n *Node) applyMember(name string, e Entry, lease leaseRecord, err error) (changed bool) {
	switch {
	case e.Deleted:
		n.view.hide(n.clock(), name, e.Revision)
	case err != nil:
		n.view.show(name, nil, e.Revision)
	default:
		n.view.show(name, &owner{name, lease.Epoch, lease.Term}, e.Revision)
	}
	was, known := n.members[name]
	if s := n.view.nodes[name]; s == nil || !s.present() {
		delete(n.members, name)
		return known
	}
	if e.Deleted { // perhaps an old state was shown
		return false
	}
	is := Member{
		Name: name, Epoch: lease.Epoch, Address: lease.Address, Certificate: lease.Certificate, Version: lease.Program,
		Labels: lease.Labels, Draining: lease.Draining, Since: lease.Since, term: lease.Term, challenge: lease.Challenge,
	}
	n.members[name] = is
	return !known || is.Epoch != was.Epoch || is.term != was.term || is.Draining != was.Draining ||
		is.Address != was.Address || !bytes.Equal(is.Certificate, was.Certificate)
}

// applyClaim applies a change of a key that some node has claimed. The caller holds n.mu.
func (n *Node) applyClaim(e Entry, claim claimRecord, err error) (changed bool) {
	was, known := n.others[e.Key]
	if e.Deleted || err != nil {
		delete(n.others, e.Key)
		return known
	}
	is := otherClaim{owner{Node: claim.Node, Epoch: claim.Epoch}, claim.Number, claim.Data}
	n.others[e.Key] = is
	return !known || is.owner != was.owner || is.number != was.number
}
