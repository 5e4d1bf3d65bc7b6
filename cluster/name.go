package cluster

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/bowline-mcp/bowline/cluster/internal/hop"
	"github.com/bowline-mcp/bowline/internal/seal"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const nodePrefix = "node."

// leaseKey is the key of this node's lease.
func (n *Node) leaseKey() string { return nodePrefix + n.options.Node }

// takeName creates the lease of this node. It waits until the lease of an earlier process with
// the same name has expired, unless that process has ended for certain.
func (n *Node) takeName(ctx context.Context) error {
	key := n.leaseKey()
	e := &entry{key: key, plain: n.leasePlain, flights: map[*flight]struct{}{}}
	e.hold.keeps = true
	giveUp := n.clock() + leaseTTL + 2*retryEvery
	waits := false
	for {
		n.mu.Lock()
		value := n.sealEntry(e, 0)
		n.mu.Unlock()
		sent := n.clock()
		revision, err := n.leases.Create(ctx, key, value, 0)
		var taken error
		if errors.Is(err, ErrExists) {
			revision, taken, err = n.displace(ctx, e, value)
		}
		switch {
		case err == nil:
			n.mu.Lock()
			e.hold.begun(sent, revision)
			n.view.renewed(sent, revision)
			n.highest = revision
			n.table[key] = e
			n.mu.Unlock()
			return nil
		case errors.Is(err, ErrExists) && n.clock() >= giveUp:
			return taken
		case !errors.Is(err, ErrExists) && (!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied)):
			return err
		}
		if errors.Is(err, ErrExists) && !waits {
			waits = true
			n.log.Info("cluster: another process has the name of this node; waiting for its lease to end", "within", leaseTTL)
		}
		if waited := wait.Sleep(ctx, retryEvery); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// displace replaces the lease of this name if this process has left it itself, because the
// answer to an earlier attempt was lost, or if the process that has it has ended. Otherwise it
// returns ErrExists, and what to tell the caller of Join if that stays so.
func (n *Node) displace(ctx context.Context, e *entry, value []byte) (revision uint64, taken, err error) {
	taken = &NameTakenError{Node: n.options.Node}
	got, err := n.leases.Get(ctx, e.key)
	if err != nil {
		return 0, taken, ErrExists
	}
	r, err := n.openLease(e.key, got.Value)
	switch {
	case errors.Is(err, seal.ErrOpen):
		return 0, &KeyError{Bytes: len(n.options.Key), Nodes: []string{n.options.Node}}, ErrExists
	case err != nil, !e.wrote(got.Value) && !n.hasEnded(ctx, r):
		return 0, &NameTakenError{n.options.Node, r.Address}, ErrExists
	}
	revision, err = n.leases.Update(ctx, e.key, value, got.Revision)
	if errors.Is(err, ErrConflict) {
		err = ErrExists // it has changed since, and the next attempt sees how
	}
	return revision, taken, err
}

// hasEnded reports whether the process of a lease has ended for certain: nobody answers its
// control requests, and its door is not there any more.
func (n *Node) hasEnded(ctx context.Context, r leaseRecord) bool {
	if r.Address == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, retryEvery)
	defer cancel()
	_, err := n.askProcess(ctx, owner{Node: n.options.Node, Epoch: r.Epoch}, r.Challenge, opPing, nil)
	if !errors.Is(err, ErrNoResponder) {
		return false
	}
	return n.hop.Gone(ctx, hop.Peer{Node: n.options.Node, Address: r.Address, SPKI: string(r.Certificate)})
}

// leasePlain returns the value of this node's lease. The caller holds n.mu.
func (n *Node) leasePlain() []byte {
	term := uint64(1)
	if e := n.table[n.leaseKey()]; e != nil {
		term = e.hold.nextTerm()
	}
	return encode(leaseRecord{
		Version: recordVersion, Epoch: n.epoch, Term: term, Address: n.address, Certificate: n.spki,
		Program: n.options.Version, Labels: n.options.Labels, Draining: n.draining, Since: n.since,
		Challenge: n.challenge.present(n.clock(), rand.Text),
	})
}

// term is that of the latest lease that this node has had. The caller holds n.mu.
func (n *Node) term() uint64 {
	if e := n.table[n.leaseKey()]; e != nil {
		return e.hold.term()
	}
	return 0
}

// announce publishes where this node can be reached, with the next renewal, which is made at once.
func (n *Node) announce(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = address
	n.publish()
}

// publish renews the lease at once. The caller holds n.mu.
func (n *Node) publish() {
	if e := n.table[n.leaseKey()]; e != nil {
		e.hold.due = n.clock()
		n.poke()
	}
}
