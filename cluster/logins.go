package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	loginBucket = "login"
	lockPrefix  = "lock."

	shortestLockWait = 5 * time.Millisecond
	longestLockWait  = 500 * time.Millisecond

	// loginAttempt is how long one attempt to write takes: an answer may be lost.
	loginAttempt = 2 * time.Second
)

// Logins returns an auth.Store that all nodes share, an auth.Sealed with the key of the cluster.
// A key is locked by a lease, which ends with its node. What is saved was decided by the entry
// that the Engine had last, never by an older view of it. While the Engine cannot be reached,
// Locked waits until its context ends, also to save, since a token that was refreshed and is not
// saved is lost.
func (n *Node) Logins() auth.Store {
	secret := deriveKey(n.options, "logins")
	return auth.Sealed(
		&logins{node: n, bucket: n.lateBucket(BucketOptions{Name: loginBucket})},
		func() [][]byte { return [][]byte{secret} })
}

// logins is a store for entries that are sealed. A value without bytes means no entry.
type logins struct {
	node   *Node
	bucket *lateBucket
}

// loginKey returns the key of an entry in the bucket. It tells nobody whose login it is.
func (l *logins) loginKey(k auth.Key) (string, error) {
	text, err := json.Marshal(k)
	return l.node.hashed(string(text)), err
}

// Load implements auth.Store.
func (l *logins) Load(ctx context.Context, k auth.Key) (*auth.Entry, error) {
	key, err := l.loginKey(k)
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
	return decodeLogin(found.Value), nil
}

// decodeLogin returns a stored entry, or nil if there is none. What is no entry becomes an empty
// one, which does not open.
func decodeLogin(value []byte) *auth.Entry {
	if len(value) == 0 {
		return nil
	}
	e := new(auth.Entry)
	if e.UnmarshalBinary(value) != nil {
		return new(auth.Entry)
	}
	return e
}

// Locked implements auth.Store.
func (l *logins) Locked(ctx context.Context, k auth.Key, f func(*auth.Entry) (*auth.Entry, error)) error {
	key, err := l.loginKey(k)
	if err != nil {
		return err
	}
	var bucket Bucket
	err = l.node.persist(ctx, func(ctx context.Context) error { bucket, err = l.bucket.open(ctx); return err })
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
	before := decodeLogin(latest.Value)
	after, err := f(before)
	switch {
	case err != nil:
		return err
	case after == before:
		return nil
	}
	var value []byte // of no entry
	if after != nil {
		if value, err = after.MarshalBinary(); err != nil {
			return l.failed(k, err)
		}
	}
	return l.failed(k, l.save(ctx, bucket, key, value, latest.Revision))
}

// lock waits until no caller of the cluster has the lock of a key.
func (l *logins) lock(ctx context.Context, key string) (release func(context.Context) error, err error) {
	for delay := shortestLockWait; ; delay = min(2*delay, longestLockWait) {
		err = l.node.persist(ctx, func(ctx context.Context) error {
			attempt, cancel := context.WithTimeout(ctx, loginAttempt)
			defer cancel()
			release, err = l.node.claim(attempt, lockPrefix+key, nil, func(error) {}) // the revision decides what is saved
			if err != nil && attempt.Err() != nil {
				return fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
			return err
		})
		if !errors.Is(err, ErrExists) {
			return release, err
		}
		if err := wait.Sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// latest returns the latest value of a key. A Get may show an older one, so the value is
// written again under its revision: that succeeds for the latest one only. A key without
// a value gets one that means no entry.
func (l *logins) latest(ctx context.Context, bucket Bucket, key string) (found Entry, err error) {
	err = l.node.persist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, loginAttempt)
		defer cancel()
		found, err = bucket.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			found.Revision, err = bucket.Create(ctx, key, nil, 0)
		case err == nil:
			found.Revision, err = bucket.Update(ctx, key, found.Value, found.Revision)
		}
		if errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) {
			return fmt.Errorf("%w: it shows an old value", ErrUnavailable) // until the view is newer
		}
		return err
	})
	return found, err
}

// save replaces the value with a revision. After an attempt whose outcome is unknown, the value
// itself tells whether that succeeded: no two sealed values are equal.
func (l *logins) save(ctx context.Context, bucket Bucket, key string, value []byte, revision uint64) error {
	doubtful := false
	return l.node.persist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, loginAttempt)
		defer cancel()
		_, err := bucket.Update(ctx, key, value, revision)
		if !errors.Is(err, ErrConflict) || !doubtful {
			doubtful = doubtful || err != nil
			return err
		}
		found, getErr := bucket.Get(ctx, key)
		switch {
		case getErr != nil:
			return getErr
		case found.Revision <= revision:
			return fmt.Errorf("%w: it shows an old value", ErrUnavailable)
		case bytes.Equal(found.Value, value):
			return nil
		default:
			return err
		}
	})
}

// failed returns an error of the store about a key.
func (l *logins) failed(k auth.Key, err error) error {
	if err == nil {
		return nil
	}
	return &auth.StoreError{Path: fmt.Sprintf("cluster %s: %s", l.node.options.Cluster, cmp.Or(k.Resource, k.Issuer)), Err: err}
}
