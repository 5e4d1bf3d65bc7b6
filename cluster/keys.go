package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// keysKey is where the record of keys is, in the bucket of shared values. It has a prefix of its own, so that who follows it is not sent all values.
	keysPrefix = "keys."
	keysKey    = keysPrefix + "record"
	sealKeys   = "record of keys"

	// maxBy is how many bytes name who has rotated the keys.
	maxBy = 256

	// maxRetired is how many replaced keys are accepted beside the one in use.
	maxRetired = 8

	// RotateTimeout is how long a rotation waits until all nodes accept the new key: longer than the lease of a node that was killed.
	RotateTimeout = leaseTTL + 10*time.Second

	// firstLook is how long Keys waits for the record. A node that cannot read it begins with the keys that it can derive, and catches up.
	firstLook = 5 * time.Second
)

// The keys that a program shares are derived from the key of the cluster and a salt, which a record in the Engine names. A rotation
// writes the record twice, by compare-and-set. First it names the next salt: each node that sees that accepts what the next key has made, and says so in
// its Report. When all members do, the record makes it the current one. A node that has not seen that yet goes on with the key before, which the others
// accept as one that was replaced. So whatever the members at the beginning of a rotation have seen of it, each accepts what any other makes. A node that
// joins meanwhile and reads an old record does so as soon as its watch shows the new one.
//
// Nothing here decides by a clock but how long a replaced key is accepted, which each node counts from when it has seen that. The times in the record are for
// people, and for a node that has started since.

// Keys returns a function that returns the secrets for one purpose of the program, the same on all
// nodes: 32 bytes each, derived from the key of the cluster. The first is for what is new, and what was
// made with any of them is accepted. Use it for the Secrets of server.AskingOptions and the DPoPSecrets
// of resource.Options. Another name gives other secrets. RotateKeys replaces them. The first call waits until this
// node has seen which are in use, for a few seconds at most.
func (n *Node) Keys(name string) func() [][]byte {
	n.generations.begin.Do(n.followKeys)
	derive := func(purpose string) []byte { return deriveKey(n.options, purpose) }
	return func() [][]byte { return n.generations.secrets(derive, "keys "+name, time.Now()) }
}

// followKeys begins to follow the record of keys, and waits until it was seen.
func (n *Node) followKeys() {
	n.onReport(func(r *Report) { r.Keys.Used, r.Keys.Accepts = true, n.generations.ids(time.Now()) })
	looked := make(chan struct{})
	if n.goUnlessClosed(func() { n.watchKeys(looked) }) != nil {
		return
	}
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	select {
	case <-looked:
	case <-timer.C:
		n.log.Warn("cluster: which shared keys are in use could not be read yet", "within", firstLook)
	case <-n.ctx.Done():
	}
}

// watchKeys applies each record of keys until the node is closed. Looked is closed when the newest one was applied, or none can be read.
func (n *Node) watchKeys(looked chan struct{}) {
	done := false
	finish := func() {
		if !done {
			close(looked)
		}
		done = true
	}
	defer finish()
	k := keysStore{n, nil}
	err := n.persist(n.ctx, func(ctx context.Context) (err error) {
		k, err = n.openKeys(ctx)
		return err
	})
	if err != nil {
		if n.ctx.Err() == nil {
			n.log.Warn("cluster: the shared keys cannot be rotated, since their record cannot be read", "err", err)
		}
		return
	}
	shown := false
	for e := range k.bucket.Watch(n.ctx, keysPrefix) {
		switch {
		case e.Key == keysKey && !e.Deleted: // also each time that the watch begins again
			shown = true
			k.apply(e)
		case e.Key == keysKey:
			shown = false // an Engine that has lost everything says so
		case e.Current:
			if !shown {
				k.rewrite(0) // the Engine may have lost it
			}
			finish()
		}
	}
}

// A keysStore is the record of keys in the Engine.
type keysStore struct {
	node   *Node
	bucket Bucket
}

// openKeys opens the store, whose bucket it makes if nobody has used it.
func (n *Node) openKeys(ctx context.Context) (keysStore, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	bucket, err := n.engine.Bucket(ctx, BucketOptions{Name: valueBucket, MaxBytes: maxValueBytes})
	return keysStore{n, bucket}, err
}

// apply applies a record, unless this node has seen a later one.
func (k keysStore) apply(e Entry) {
	n := k.node
	r, err := k.read(e.Value)
	if err != nil {
		n.log.Warn("cluster: the record of shared keys cannot be read", "err", err)
		return
	}
	switch before, newer := n.generations.set(r, time.Now()); {
	case r.Number < before.Number:
		k.rewrite(e.Revision)
	case newer && r.Current != before.Current && before.Number > 0:
		n.log.Info("cluster: the shared keys were rotated", "by", r.By)
		n.generations.tell(r.status())
	}
}

// rewrite gives the Engine the record that this node knows, in place of an older one. The watch shows what came of it.
func (k keysStore) rewrite(revision uint64) {
	known := k.node.generations.known()
	if known.Number == 0 {
		return
	}
	if _, err := k.save(k.node.ctx, known, revision); err != nil {
		k.node.log.Warn("cluster: the record of shared keys could not be written again", "err", err)
	}
}

// read opens a record. What it is derived from is no secret without the key of the cluster, but nobody else shall make one.
func (k keysStore) read(sealed []byte) (r keysRecord, err error) {
	plain, err := k.node.open(sealKeys, valueBucket+"/"+keysKey, sealed)
	if err == nil {
		err = decodeRecord(plain, &r)
	}
	if err == nil && (r.Number == 0 || len(r.Retired) > maxRetired) {
		err = errors.New("it is none")
	}
	return r, err
}

// load returns the record and its revision; before the first rotation there is none.
func (k keysStore) load(ctx context.Context) (keysRecord, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	found, err := k.bucket.Get(ctx, keysKey)
	if errors.Is(err, ErrNotFound) {
		return keysRecord{}, 0, nil
	}
	if err != nil {
		return keysRecord{}, 0, err
	}
	r, err := k.read(found.Value)
	return r, found.Revision, err
}

// save replaces the record with a revision. It reports false if there is another one by now.
func (k keysStore) save(ctx context.Context, r keysRecord, revision uint64) (saved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	sealed := k.node.seal(sealKeys, valueBucket+"/"+keysKey, encode(r))
	if revision == 0 {
		_, err = k.bucket.Create(ctx, keysKey, sealed, 0)
	} else {
		_, err = k.bucket.Update(ctx, keysKey, sealed, revision)
	}
	if errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// RotateKeys replaces the secrets of Keys, in two steps: when all nodes accept the new ones, they are used for what is new. What was made with
// the old ones is accepted for two hours more, which is longer than anything lasts that was made with them. Rotations at the same time are
// one, and one that was broken off is gone on with by the next. If a node does not accept the new secrets, the old ones stay in use; a
// node that is away sees them when it is back. The key of the cluster, from which all are derived, stays as it is. By says to people who does it,
// in 256 bytes at most; nothing is decided by it.
func (n *Node) RotateKeys(ctx context.Context, by string) error {
	if len(by) > maxBy {
		return fmt.Errorf("cluster: who rotates the keys is named in %d bytes at most", maxBy)
	}
	var began *string // what was in use at first
	return n.persist(ctx, func(ctx context.Context) error {
		k, err := n.openKeys(ctx)
		if err != nil {
			return fmt.Errorf("cluster: the record of shared keys: %w", err)
		}
		r, revision, err := k.load(ctx)
		if err != nil {
			return fmt.Errorf("cluster: the record of shared keys: %w", err)
		}
		if began == nil {
			began = &r.Current
		}
		if r.Current != *began {
			return nil // another rotation has come first, or the answer to this one was lost
		}
		return k.rotate(ctx, r, revision, by)
	})
}

// OnRotate says who hears that the keys were rotated, once for each rotation that this node sees: one that was away for several sees the last. It must not take long,
// and replaces who was named before.
func (n *Node) OnRotate(rotated func(KeysStatus)) {
	n.generations.mu.Lock()
	defer n.generations.mu.Unlock()
	n.generations.rotated = rotated
}

// errKeysChanged says that another rotation has changed the record, or that an old one was read: look again.
var errKeysChanged = fmt.Errorf("cluster: the record of shared keys has changed: %w", ErrUnavailable)

// rotate makes the steps of a rotation that are left. The first names a new key, which each node accepts as soon as it sees that.
func (k keysStore) rotate(ctx context.Context, r keysRecord, revision uint64, by string) error {
	if r.Next == "" {
		if r = r.pruned(time.Now()); len(r.Retired) >= maxRetired {
			return fmt.Errorf("cluster: the shared keys were rotated %d times lately, and what was made with the old ones is still accepted: wait for some hours", maxRetired)
		}
		r.Version, r.Next, r.Number = recordVersion, rand.Text(), r.Number+1
		if saved, err := k.save(ctx, r, revision); err != nil || !saved {
			return cmp.Or(err, errKeysChanged)
		}
		proposed := r.Next
		var err error
		if r, revision, err = k.load(ctx); err != nil || r.Next != proposed {
			return cmp.Or(err, errKeysChanged)
		}
	}
	if err := k.node.awaitAccepted(ctx, r.Next); err != nil {
		return err
	}
	saved, err := k.save(ctx, r.promoted(time.Now(), by), revision)
	if err == nil && !saved {
		err = errKeysChanged
	}
	return err
}

// awaitAccepted waits until all members accept a key.
func (n *Node) awaitAccepted(ctx context.Context, salt string) error {
	ctx, cancel := context.WithTimeout(ctx, RotateTimeout)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var lacking []string
	for {
		now, err := n.lackingKey(ctx, generationID(salt))
		if err != nil || len(now) == 0 {
			return err
		}
		if ctx.Err() == nil || lacking == nil { // otherwise those are among them that had no time to answer
			lacking = now
		}
		timer.Reset(acceptEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("cluster: the new keys are not used, since these nodes do not accept them yet: %q: see bowline nodes, and rotate again", lacking)
		}
	}
}

// acceptEvery is how often nodes are asked whether they accept a key.
const acceptEvery = 200 * time.Millisecond

// lackingKey returns the members that do not accept a key yet, or do not answer. A node of a version that knows of no rotation never will.
func (n *Node) lackingKey(ctx context.Context, id string) (lacking []string, err error) {
	reports, err := n.collect(ctx)
	if silent := (*SilentError)(nil); errors.As(err, &silent) {
		lacking = silent.Nodes
	} else if err != nil {
		return nil, err
	}
	if !n.observes {
		reports = append(reports, n.Report())
	}
	for _, r := range reports {
		switch {
		case r.Keys == nil:
			return nil, fmt.Errorf("cluster: node %q has a version that does not rotate keys: replace it first", r.Name)
		case r.Keys.Used && !slices.Contains(r.Keys.Accepts, id):
			lacking = append(lacking, r.Name)
		}
	}
	return lacking, nil
}

// KeysStatus says how the secrets of Keys are.
func (o *Observer) KeysStatus(ctx context.Context) (KeysStatus, error) {
	k, err := o.node.openKeys(ctx)
	if err != nil {
		return KeysStatus{}, err
	}
	r, _, err := k.load(ctx)
	return r.status(), err
}

// RotateKeys replaces the secrets of Keys, as that of Node does.
func (o *Observer) RotateKeys(ctx context.Context, by string) error {
	return o.node.RotateKeys(ctx, by)
}
