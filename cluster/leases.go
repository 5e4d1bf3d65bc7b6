package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

// An entry is a key that this node holds.
type entry struct {
	hold    hold
	key     string
	plain   func() []byte // the value; the caller holds n.mu
	number  uint64        // of the claim; 0: the lease of the node
	lost    func(error)   // nil for the lease of the node
	renewed func(deadline time.Time)
	flights map[*flight]struct{}

	// values contains the values that the Engine may still return, the newest last. Each
	// renewal seals its value anew, so that no other process can have written it, not even a
	// copy of this one, such as one from a snapshot of its machine.
	values []writtenValue
}

type writtenValue struct {
	base          uint64 // the revision that it replaces
	plain, sealed []byte
}

// maxWritten is how many values of a key are remembered. A retry writes the same value again.
const maxWritten = 8

// sealEntry returns the sealed value that replaces the one with revision base. The caller holds n.mu.
func (n *Node) sealEntry(e *entry, base uint64) []byte {
	plain := e.plain()
	if last := len(e.values) - 1; last >= 0 && e.values[last].base == base && bytes.Equal(e.values[last].plain, plain) {
		return e.values[last].sealed
	}
	if len(e.values) == maxWritten {
		e.values = slices.Delete(e.values, 0, 1)
	}
	sealed := n.seal(sealLease, leaseBucket+"/"+e.key, plain)
	e.values = append(e.values, writtenValue{base, plain, sealed})
	return sealed
}

// wrote reports whether this process has written a value lately. The caller holds n.mu.
func (e *entry) wrote(sealed []byte) bool {
	return slices.ContainsFunc(e.values, func(w writtenValue) bool { return bytes.Equal(w.sealed, sealed) })
}

// A flight is an attempt that waits for its answer.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// attemptTimeout bounds one attempt. The next one is made after retryEvery all the same.
const attemptTimeout = 5 * time.Second

// errLeaseExpired and errLeaseRemoved say why a hold has ended.
var errLeaseExpired = errors.New("cluster: the lease could not be renewed in time")

var errLeaseRemoved = errors.New("cluster: the lease was removed, or the engine has lost it")

// openLeases opens the bucket of leases. It is a file of the Engine, so that leases survive a
// restart of the Engine that takes less than their time.
func (n *Node) openLeases(ctx context.Context) (Bucket, error) {
	var bucket Bucket
	err := n.persist(ctx, func(ctx context.Context) (err error) {
		bucket, err = n.engine.Bucket(ctx, BucketOptions{Name: leaseBucket, TTL: leaseTTL, MaxValue: maxLeaseValue})
		return err
	})
	return bucket, err
}

const (
	leaseBucket   = "lease"
	maxLeaseValue = 16 << 10
)

// renew writes all keys of this node before they expire, until the node is closed. It waits
// for no answer: each attempt has a goroutine, at most maxFlying for one key.
func (n *Node) renew() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, change := n.engine.Connected()
		timer.Reset(n.advance())
		select {
		case <-n.ctx.Done():
			return
		case <-n.kick:
		case <-change:
			n.hurry()
		case <-timer.C:
		}
	}
}

// advance ends holds whose time has passed, starts the attempts that are due, and returns for
// how long nothing is to be done.
func (n *Node) advance() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock()
	wake := now + renewEvery
	for _, e := range n.table {
		n.expire(e, now)
		if a := e.hold.next(now); a.op != noOperation {
			n.start(e, a)
		}
		wake = min(wake, e.hold.wake())
	}
	n.assess()
	return max(0, wake-now)
}

// expire ends a hold if its time has passed. What the Engine says is looked at only after
// that, since a process that was paused learns late. The caller holds n.mu.
func (n *Node) expire(e *entry, now instant) {
	if e.hold.expire(now) {
		n.drop(e, errLeaseExpired)
	}
}

// hurry makes all attempts that failed due, because the connection has changed.
func (n *Node) hurry() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.table {
		if e.hold.failing {
			e.hold.due = n.clock()
		}
	}
}

// drop tells the holder of a key that it is lost. The caller holds n.mu.
func (n *Node) drop(e *entry, why error) {
	n.log.Warn("cluster: a lease is lost", "key", e.key, "err", why)
	if e.hold.over {
		delete(n.table, e.key)
	}
	if e.lost != nil {
		n.running.Go(func() { e.lost(why) })
	}
	n.poke()
}

// poke makes the loop look at the table.
func (n *Node) poke() {
	select {
	case n.kick <- struct{}{}:
	default: // it looks anyway
	}
}

// start makes an attempt on a goroutine of its own. The caller holds n.mu.
func (n *Node) start(e *entry, a attempt) {
	ctx, cancel := context.WithTimeout(n.ctx, attemptTimeout)
	f := &flight{cancel, make(chan struct{})}
	e.flights[f] = struct{}{}
	before := n.highest
	var value []byte
	if a.op != read {
		value = n.sealEntry(e, a.base)
	}
	n.running.Go(func() {
		defer cancel()
		defer close(f.done)
		switch a.op {
		case read:
			n.look(ctx, e, a)
		case create:
			revision, err := n.leases.Create(ctx, e.key, value, 0)
			n.wrote(e, a, before, revision, err)
		default:
			revision, err := n.leases.Update(ctx, e.key, value, a.base)
			n.wrote(e, a, before, revision, err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(e.flights, f)
		n.poke()
	})
}

// wrote applies the answer to a create or an update. Before is the highest revision that was
// known when it was sent.
func (n *Node) wrote(e *entry, a attempt, before, revision uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock()
	n.expire(e, now)
	switch {
	case err == nil:
		e.hold.accepted(a, revision)
		n.written(before, revision)
		if e.number == 0 {
			n.view.renewed(a.sent, revision)
		}
		if e.renewed != nil && e.hold.held(now) {
			e.renewed(n.timeOf(e.hold.until))
		}
	case errors.Is(err, ErrConflict), errors.Is(err, ErrExists):
		e.hold.refused(now, a)
	default:
		n.failed(e, a, err)
	}
}

// failed applies that an attempt got no answer. The caller holds n.mu.
func (n *Node) failed(e *entry, a attempt, err error) {
	if !e.hold.failing && n.ctx.Err() == nil {
		n.log.Warn("cluster: a lease was not renewed", "key", e.key, "err", err)
	}
	e.hold.failed(a)
}

// look reads what a key has.
func (n *Node) look(ctx context.Context, e *entry, a attempt) {
	got, err := n.leases.Get(ctx, e.key)
	n.mu.Lock()
	defer n.mu.Unlock()
	now, what := n.clock(), nothing
	switch {
	case err == nil && e.wrote(got.Value):
		what = own
	case err == nil:
		what = foreign
	}
	n.expire(e, now)
	if err != nil && !errors.Is(err, ErrNotFound) {
		n.failed(e, a, err)
	} else if e.hold.found(now, a, what, got.Revision) {
		n.vanished(e, now)
	}
}

// vanished handles a key that lost its value before its time, so that somebody has removed it,
// or the Engine has lost it. The caller holds n.mu.
func (n *Node) vanished(e *entry, now instant) {
	if e.number == 0 {
		n.emptied(now)
	}
	n.drop(e, errLeaseRemoved)
}

// written records the revision of a value that was accepted, and reports whether the Engine has
// lost its values: then revisions are lower than those before the value was sent. The caller
// holds n.mu.
func (n *Node) written(before, revision uint64) (emptied bool) {
	if revision < before {
		n.emptied(n.clock())
		n.highest = revision
		return true
	}
	n.highest = max(n.highest, revision)
	return false
}

// emptied delays the next claims: the Engine has lost leases that their holders may believe
// in for leaseHeld. The caller holds n.mu.
func (n *Node) emptied(now instant) { n.pauseTill = max(n.pauseTill, now+leaseTTL) }

// holds reports whether this node holds a key now, by its own clock. Who serves what only
// one node may serve asks it at each use.
func (n *Node) holds(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.table[key]
	return e != nil && e.hold.held(n.clock())
}

// heldUntil returns until when this node holds a key, as far as known; the zero time if it does
// not.
func (n *Node) heldUntil(key string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.table[key]; e != nil && e.hold.held(n.clock()) {
		return n.timeOf(e.hold.until)
	}
	return time.Time{}
}

// onRenewal calls f with the time until which this node holds a key: at once, and after each
// renewal, until the key is released or lost. f is called while the table is locked, and must
// not block or call methods of the Node. It does nothing if the key is not held.
func (n *Node) onRenewal(key string, f func(deadline time.Time)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.table[key]; e != nil && e.hold.held(n.clock()) {
		e.renewed = f
		f(n.timeOf(e.hold.until))
	}
}

// timeOf returns an instant as a time with a monotonic reading. If the machine is suspended
// before that time, it comes too late by the length of the suspension.
func (n *Node) timeOf(at instant) time.Time { return time.Now().Add(at - n.clock()) }

// persist calls f again, once a second, while the Engine cannot be reached.
func (n *Node) persist(ctx context.Context, f func(context.Context) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		err := f(ctx)
		if err == nil || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) || ctx.Err() != nil {
			return err
		}
		timer.Reset(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return err
		}
	}
}
