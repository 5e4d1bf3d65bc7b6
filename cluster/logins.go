package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/internal/pause"
)

const (
	loginBucket = "login"
	sealLogin   = "login"
	lockPrefix  = "lock."
)

// Logins returns an auth.Store that all nodes share. A key is locked by a lease, which ends with
// its node. What is saved was decided by the entry that the Engine had last, never by an older
// view of it.
func (n *Node) Logins() auth.Store {
	return &logins{node: n, bucket: n.lateBucket(BucketOptions{Name: loginBucket})}
}

type logins struct {
	node   *Node
	bucket *lateBucket
}

var _ auth.Store = (*logins)(nil)

// loginKey returns the key of an entry in the bucket. It tells nobody whose login it is.
func loginKey(k auth.Key) (string, error) {
	text, err := json.Marshal(k)
	return hashed(string(text)), err
}

// Load implements auth.Store.
func (l *logins) Load(ctx context.Context, k auth.Key) (*auth.Entry, error) {
	key, err := loginKey(k)
	if err != nil {
		return nil, err
	}
	bucket, err := l.bucket.open(ctx)
	if err != nil {
		return nil, l.failed(k, err)
	}
	found, err := bucket.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, l.failed(k, err)
	}
	e, err := l.decode(key, found.Value)
	return e, l.failed(k, err)
}

// Locked implements auth.Store.
func (l *logins) Locked(ctx context.Context, k auth.Key, f func(*auth.Entry) (*auth.Entry, error)) error {
	key, err := loginKey(k)
	if err != nil {
		return err
	}
	bucket, err := l.bucket.open(ctx)
	if err != nil {
		return l.failed(k, err)
	}
	release, err := l.lock(ctx, key)
	if err != nil {
		return l.failed(k, err)
	}
	// If the release fails, the lock expires; the context may have ended by then.
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	latest, err := l.latest(ctx, bucket, key)
	if err != nil {
		return l.failed(k, err)
	}
	before, err := l.decode(key, latest.Value)
	if err != nil {
		return l.failed(k, err)
	}
	after, err := f(before)
	if err != nil {
		return err
	}
	var plain []byte // of no entry
	if after != nil {
		if plain, err = after.MarshalBinary(); err != nil {
			return l.failed(k, err)
		}
	}
	_, err = bucket.Update(ctx, key, l.node.seal(sealLogin, loginBucket+"/"+key, plain), latest.Revision)
	return l.failed(k, err)
}

// lock waits until no caller of the cluster has the lock of a key.
func (l *logins) lock(ctx context.Context, key string) (release func(context.Context) error, err error) {
	for wait := shortestLockWait; ; wait = min(2*wait, longestLockWait) {
		release, err = l.node.claim(ctx, lockPrefix+key, nil, func(error) {}) // the revision decides what is saved
		if !errors.Is(err, ErrExists) {
			return release, err
		}
		if err := pause.For(ctx, wait); err != nil {
			return nil, err
		}
	}
}

const (
	shortestLockWait = 5 * time.Millisecond
	longestLockWait  = 500 * time.Millisecond
)

// latest returns the latest value of a key. A Get may show an older one, so the value is
// written again under its revision: that succeeds for the latest one only. A key without
// a value gets one that means no entry.
func (l *logins) latest(ctx context.Context, bucket Bucket, key string) (Entry, error) {
	for {
		found, err := bucket.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			found.Value = l.node.seal(sealLogin, loginBucket+"/"+key, nil)
			found.Revision, err = bucket.Create(ctx, key, found.Value, 0)
		case err != nil:
			return Entry{}, err
		default:
			found.Revision, err = bucket.Update(ctx, key, found.Value, found.Revision)
		}
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrConflict) {
			return Entry{}, err
		}
		if !tryLater(ctx, nil) { // until the view is newer
			return Entry{}, context.Cause(ctx)
		}
	}
}

// decode returns an entry, or nil if the value means none.
func (l *logins) decode(key string, sealed []byte) (*auth.Entry, error) {
	plain, err := l.node.open(sealLogin, loginBucket+"/"+key, sealed)
	if err != nil {
		return nil, fmt.Errorf("the login does not open with the key of the cluster; log out, and log in again: %w", err)
	}
	if len(plain) == 0 {
		return nil, nil
	}
	e := new(auth.Entry)
	return e, e.UnmarshalBinary(plain)
}

// failed returns an error of the store about a key.
func (l *logins) failed(k auth.Key, err error) error {
	if err == nil {
		return nil
	}
	return &auth.StoreError{Path: fmt.Sprintf("cluster %s: %s%s", l.node.options.Cluster, k.Resource, k.Issuer), Err: err}
}
