package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"sync"
)

// A lateBucket opens its bucket when it is first used, so that a node needs no bucket that its
// program does not use.
type lateBucket struct {
	node    *Node
	options BucketOptions

	mu     sync.Mutex
	bucket Bucket
}

func (n *Node) lateBucket(o BucketOptions) *lateBucket { return &lateBucket{node: n, options: o} }

func (b *lateBucket) open(ctx context.Context) (Bucket, error) {
	b.mu.Lock()
	bucket := b.bucket
	b.mu.Unlock()
	if bucket != nil {
		return bucket, nil
	}
	bucket, err := b.node.engine.Bucket(ctx, b.options)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket = bucket
	return bucket, nil
}

// hashed returns a part of a key for a text that the Engine must not learn, such as an id that
// lets its owner in. It is a keyed hash, so that nobody without the key of the cluster can
// find out whether a text that can be guessed, such as a name, is there.
func (n *Node) hashed(text string) string {
	sum := hmac.New(sha256.New, n.hashKey)
	sum.Write([]byte(text))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum.Sum(nil))
}
