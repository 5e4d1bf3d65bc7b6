package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// A bucket implements cluster.Bucket.
type bucket struct {
	engine  *Engine
	options cluster.BucketOptions
}

// Bucket implements cluster.Engine.
func (e *Engine) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	o, err := rules.Bucket(o)
	if err != nil {
		return nil, err
	}
	return call(ctx, e, Operation{Name: "bucket", Subject: o.Name}, func() (cluster.Bucket, error) {
		if _, err := e.service.bucket(o); err != nil {
			return nil, err
		}
		return &bucket{e, o}, nil
	})
}

func (b *bucket) Create(ctx context.Context, key string, data []byte, ttl time.Duration) (uint64, error) {
	ttl, err := rules.TTL(b.options, ttl)
	if err != nil {
		return 0, err
	}
	return b.write(ctx, "create", key, data, func(s *store, now time.Time) (uint64, error) { return s.create(now, key, data, ttl) })
}

func (b *bucket) Update(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	return b.write(ctx, "update", key, data, func(s *store, now time.Time) (uint64, error) { return s.update(now, key, data, revision) })
}

func (b *bucket) Put(ctx context.Context, key string, data []byte) (uint64, error) {
	return b.write(ctx, "put", key, data, func(s *store, now time.Time) (uint64, error) { return s.put(now, key, data) })
}

func (b *bucket) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := b.write(ctx, "delete", key, nil, func(s *store, _ time.Time) (uint64, error) { return s.remove(key, revision) })
	return err
}

// write changes a value. Data is nil to delete it.
func (b *bucket) write(ctx context.Context, name, key string, data []byte, change func(*store, time.Time) (uint64, error)) (uint64, error) {
	if err := rules.Value(b.options, key, data); err != nil {
		return 0, err
	}
	data = bytes.Clone(data) // for whoever watches; the caller may change his while this is on its way
	revision, err := call(ctx, b.engine, b.op(name, key), func() (uint64, error) {
		return b.engine.service.write(b.options, func(s *store, now time.Time) (cluster.Entry, error) {
			revision, err := change(s, now)
			return cluster.Entry{Key: key, Value: data, Revision: revision, Deleted: name == "delete"}, err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("%s %s in bucket %s: %w", name, key, b.options.Name, err)
	}
	return revision, nil
}

func (b *bucket) op(name, key string) Operation {
	return Operation{Name: name, Subject: b.options.Name, Key: key}
}

func (b *bucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	if err := rules.Key(key); err != nil {
		return cluster.Entry{}, err
	}
	return call(ctx, b.engine, b.op("get", key), func() (cluster.Entry, error) {
		if v, exists := b.engine.view(b.options.Name).values[key]; exists {
			return cluster.Entry{Key: key, Value: bytes.Clone(v.data), Revision: v.revision}, nil
		}
		return cluster.Entry{}, fmt.Errorf("get %s in bucket %s: %w", key, b.options.Name, cluster.ErrNotFound)
	})
}

// view returns what reads of a bucket show.
func (e *Engine) view(name string) *store {
	buckets := e.service.buckets
	if e.frozen != nil {
		buckets = e.frozen
	}
	if s := buckets[name]; s != nil {
		return s
	}
	return &store{}
}

func (b *bucket) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := rules.Prefix(prefix); err != nil {
			yield("", err)
			return
		}
		entries, err := call(ctx, b.engine, b.op("keys", prefix), func() ([]cluster.Entry, error) {
			return b.engine.view(b.options.Name).entries(prefix), nil
		})
		if err != nil {
			yield("", fmt.Errorf("list the keys of bucket %s: %w", b.options.Name, err))
			return
		}
		for _, entry := range entries {
			if !yield(entry.Key, nil) {
				return
			}
		}
	}
}
