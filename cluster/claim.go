package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/internal/pause"
)

// errClaimed says that this node has claimed the key itself.
var errClaimed = fmt.Errorf("%w: this node has claimed it", ErrExists)

// claim creates a key in the bucket of leases, such as "srv.x" or "lock.x", and renews it until
// release is called. The value is sealed. The error matches ErrExists if somebody has the
// key, also if this node has.
//
// lost is called at most once, on a goroutine of its own, when the claim ends without
// release: it was not renewed in time by this node's clock, or it was removed. Nobody else can
// have the key before that time. It may be called before claim has returned.
//
// When release returns nil, the key is free. After a loss, and when called again, it does
// nothing. If it fails, the key expires.
func (n *Node) claim(ctx context.Context, key string, value []byte, lost func(error)) (release func(context.Context) error, err error) {
	if err := n.awaitClaims(ctx); err != nil {
		return nil, err
	}
	e, err := n.reserve(key, value, lost)
	if err != nil {
		return nil, err
	}
	sent := n.clock()
	revision, err := n.leases.Create(ctx, key, n.sealClaim(key, e.number, value), 0)
	if errors.Is(err, ErrExists) {
		revision, err = n.adopt(ctx, key, e, value, err)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	n.mu.Lock()
	if err != nil || n.ctx.Err() != nil {
		delete(n.table, key)
		n.mu.Unlock()
		n.undo(key, e, revision)
		return nil, err
	}
	e.hold.begun(sent, revision)
	n.poke()
	n.mu.Unlock()
	return func(ctx context.Context) error { return n.release(ctx, key, e) }, nil
}

// awaitClaims waits while claims must wait for other nodes to notice that their leases are lost.
func (n *Node) awaitClaims(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n.mu.Lock()
		wait := n.pauseTill - n.clock()
		n.mu.Unlock()
		if n.ctx.Err() != nil {
			return errClosed
		}
		if wait <= 0 {
			return nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// reserve enters a key into the table. It is not held yet, and not renewed.
func (n *Node) reserve(key string, value []byte, lost func(error)) (*entry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table[key] != nil {
		return nil, errClaimed
	}
	n.claims++
	number := n.claims
	e := &entry{
		key: key, number: number, lost: lost, flights: map[*flight]struct{}{},
		value: func() []byte { return n.sealClaim(key, number, value) },
	}
	e.hold.due = never
	n.table[key] = e
	return e, nil
}

func (n *Node) sealClaim(key string, number uint64, value []byte) []byte {
	r := claimRecord{recordVersion, n.options.Node, n.epoch, number, value}
	return n.seal(sealLease, leaseBucket+"/"+key, encode(r))
}

// adopt takes a key that an earlier claim of this process has left: its answer was lost.
func (n *Node) adopt(ctx context.Context, key string, e *entry, value []byte, exists error) (uint64, error) {
	got, err := n.leases.Get(ctx, key)
	if err != nil {
		return 0, exists
	}
	r, err := n.openClaim(key, got.Value)
	if err != nil || r.Epoch != n.epoch {
		return 0, exists
	}
	revision, err := n.leases.Update(ctx, key, n.sealClaim(key, e.number, value), got.Revision)
	if errors.Is(err, ErrConflict) {
		return 0, exists
	}
	return revision, err
}

func (n *Node) openClaim(key string, sealed []byte) (claimRecord, error) {
	var r claimRecord
	plain, err := n.open(sealLease, leaseBucket+"/"+key, sealed)
	if err == nil {
		err = decodeRecord(plain, &r)
	}
	return r, err
}

// undo deletes what a failed claim may have written. If that fails, it expires.
func (n *Node) undo(key string, e *entry, revision uint64) {
	if revision == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return
	}
	n.running.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, attemptTimeout)
		defer cancel()
		if err := n.leases.Delete(ctx, key, revision); err != nil {
			n.log.Debug("cluster: a failed claim was not undone, and expires", "key", key, "err", err)
		}
	})
}

// release gives up a claim.
func (n *Node) release(ctx context.Context, key string, e *entry) error {
	n.mu.Lock()
	if n.table[key] != e || e.hold.over {
		n.mu.Unlock()
		return nil
	}
	e.hold.over = true
	n.mu.Unlock()
	err := n.remove(ctx, e)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table[key] == e {
		delete(n.table, key)
	}
	return err
}

// remove ends the attempts for a key that is given up, and deletes it.
func (n *Node) remove(ctx context.Context, e *entry) error {
	n.mu.Lock()
	var flights []*flight
	for f := range e.flights {
		f.cancel()
		flights = append(flights, f)
	}
	n.mu.Unlock()
	for _, f := range flights {
		<-f.done // soon, since its context has ended
	}
	n.mu.Lock()
	revision := e.hold.revision
	n.mu.Unlock()
	err := n.leases.Delete(ctx, e.key, revision)
	if !errors.Is(err, ErrConflict) {
		return err
	}
	got, err := n.leases.Get(ctx, e.key) // an attempt that was ended may have been accepted
	if err != nil || n.find(e, got.Value) != own {
		return nil
	}
	return n.leases.Delete(ctx, e.key, got.Revision)
}

// releaseAll gives up everything, the lease of the node last.
func (n *Node) releaseAll(ctx context.Context) error {
	n.mu.Lock()
	var all []*entry
	own := n.table[n.leaseKey()]
	for _, e := range n.table {
		if e != own && e.hold.revision != 0 {
			all = append(all, e)
		}
	}
	if own != nil && own.hold.revision != 0 {
		all = append(all, own)
	}
	clear(n.table)
	n.mu.Unlock()
	var first error
	for _, e := range all {
		if err := n.remove(ctx, e); err != nil && first == nil {
			first = err
		}
	}
	return first
}
