package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errClaimed says that this node has claimed the key itself.
var errClaimed = fmt.Errorf("%w: this node has claimed it", ErrExists)

// errEmptied says that a claim was made on what an Engine that has lost leases began anew.
var errEmptied = errors.New("cluster: the engine has lost leases")

// claim creates a key in the bucket of leases, such as "srv.x" or "lock.x", and renews it until
// release is called. The value is sealed. The error matches ErrExists if somebody has the
// key, also if this node has. If the Engine has lost leases, claim waits until all their
// holders have noticed, at most leaseTTL.
//
// lost is called at most once, on a goroutine of its own, when the claim ends without
// release: it was not renewed in time by this node's clock, or it was removed. Nobody else
// can have the key before the first of these. It may be called before claim has returned, and
// must not wait for Close.
//
// When release returns nil, the key is free. After a loss, and when called again, it does
// nothing. If it fails, the key expires.
func (n *Node) claim(ctx context.Context, key string, value []byte, lost func(error)) (release func(context.Context) error, err error) {
	for {
		if err := n.awaitClaims(ctx); err != nil {
			return nil, err
		}
		release, err := n.claimNow(ctx, key, value, lost)
		if !errors.Is(err, errEmptied) {
			return release, err
		}
	}
}

// awaitClaims waits while other nodes may believe in keys that the Engine has lost.
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
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-n.ctx.Done():
		}
		timer.Stop()
	}
}

func (n *Node) claimNow(ctx context.Context, key string, value []byte, lost func(error)) (func(context.Context) error, error) {
	e, before, err := n.reserve(key, value, lost)
	if err != nil {
		return nil, err
	}
	sent := n.clock()
	sealed := e.values[0].sealed
	revision, err := n.leases.Create(ctx, key, sealed, 0)
	if errors.Is(err, ErrExists) {
		revision, err = n.adopt(ctx, key, sealed)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err := n.enter(e, sent, before, revision, err); err != nil {
		if revision != 0 {
			n.undo(ctx, key, revision)
		}
		return nil, err
	}
	return func(ctx context.Context) error { return n.release(ctx, e) }, nil
}

// reserve enters a key into the table. It is not held yet, and not renewed. It also returns the
// highest revision that is known.
func (n *Node) reserve(key string, value []byte, lost func(error)) (e *entry, before uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table[key] != nil {
		return nil, 0, errClaimed
	}
	n.claims++
	number := n.claims
	plain := encode(claimRecord{recordVersion, n.options.Node, n.epoch, number, value})
	e = &entry{key: key, number: number, lost: lost, flights: map[*flight]struct{}{}, plain: func() []byte { return plain }}
	e.hold.due = never
	n.sealEntry(e, 0)
	n.table[key] = e
	return e, n.highest, nil
}

// enter makes a reserved key one that is held, or removes it from the table.
func (n *Node) enter(e *entry, sent instant, before, revision uint64, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
	case n.ctx.Err() != nil:
		err = errClosed
	case n.written(before, revision):
		err = errEmptied
	default:
		delete(n.left, e.key)
		e.hold.begun(sent, revision)
		n.poke()
		return nil
	}
	delete(n.table, e.key)
	switch {
	case errors.Is(err, ErrExists):
		delete(n.left, e.key)
	case len(n.left) < maxLeft || n.left[e.key] != nil:
		n.left[e.key] = e.values[0].sealed
	}
	return err
}

// maxLeft is how many failed claims are remembered. The others keep their keys until they expire.
const maxLeft = 256

// adopt takes a key that the last claim of this node has left, because its answer was lost. If
// somebody else has the key, the error matches ErrExists.
func (n *Node) adopt(ctx context.Context, key string, sealed []byte) (uint64, error) {
	n.mu.Lock()
	left := n.left[key]
	n.mu.Unlock()
	if left == nil {
		return 0, ErrExists
	}
	got, err := n.leases.Get(ctx, key)
	if err != nil || !bytes.Equal(got.Value, left) {
		return 0, ErrExists
	}
	revision, err := n.leases.Update(ctx, key, sealed, got.Revision)
	if errors.Is(err, ErrConflict) {
		return 0, ErrExists
	}
	return revision, err
}

// undo deletes what a failed claim has written. If that fails, it expires.
func (n *Node) undo(ctx context.Context, key string, revision uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryEvery)
	defer cancel()
	if err := n.leases.Delete(ctx, key, revision); err != nil {
		n.log.Debug("cluster: a failed claim was not undone, and expires", "key", key, "err", err)
	}
}

// release gives up a claim.
func (n *Node) release(ctx context.Context, e *entry) error {
	n.mu.Lock()
	if n.table[e.key] != e || e.hold.over {
		n.mu.Unlock()
		return nil
	}
	e.hold.over = true
	n.mu.Unlock()
	err := n.remove(ctx, e)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table[e.key] == e {
		delete(n.table, e.key)
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
	// An attempt that was ended may have been accepted. If the read is too old to show it,
	// the key expires.
	got, err := n.leases.Get(ctx, e.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	n.mu.Lock()
	own := err == nil && e.wrote(got.Value)
	n.mu.Unlock()
	if !own {
		return nil
	}
	if err = n.leases.Delete(ctx, e.key, got.Revision); errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// releaseAll gives up everything at the same time, but the lease of the node last: then its
// end says that nothing of this process is left.
func (n *Node) releaseAll(ctx context.Context) error {
	n.mu.Lock()
	var claims []*entry
	lease := n.table[n.leaseKey()]
	for _, e := range n.table {
		if e != lease && e.hold.revision != 0 {
			claims = append(claims, e)
		}
	}
	clear(n.table)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	errs := make([]error, len(claims))
	var group sync.WaitGroup
	for i, e := range claims {
		group.Go(func() { errs[i] = n.remove(ctx, e) })
	}
	group.Wait()
	err := errors.Join(errs...)
	if lease != nil && lease.hold.revision != 0 {
		err = errors.Join(err, n.remove(ctx, lease))
	}
	return err
}
