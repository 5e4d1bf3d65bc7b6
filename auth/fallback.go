package auth

import (
	"context"
	"sync/atomic"
)

// A fallback is a Store for one Authorizer. If the Store behind it cannot save an entry,
// the fallback keeps the entry in memory.
type fallback struct {
	Store
	memory *Memory
	failed atomic.Bool
}

func (f *fallback) now() Store {
	if f.failed.Load() {
		return f.memory
	}
	return f.Store
}

func (f *fallback) Locked(ctx context.Context, k Key, change func(*Entry) (*Entry, error)) error {
	return f.now().Locked(ctx, k, change)
}

// change does what Locked does, for a change that a person has requested. It may replace
// or remove an entry that a Files cannot decrypt.
func (f *fallback) change(ctx context.Context, k Key, how change, do func(*Entry) (*Entry, error)) error {
	if files, ok := f.now().(*Files); ok {
		return files.change(ctx, k, how, do)
	}
	return f.Locked(ctx, k, do)
}

func (f *fallback) Load(ctx context.Context, k Key) (*Entry, error) { return f.now().Load(ctx, k) }

// keep keeps an entry in memory that was not saved.
func (f *fallback) keep(ctx context.Context, k Key, e *Entry) error {
	f.failed.Store(true)
	return f.memory.Locked(ctx, k, func(*Entry) (*Entry, error) { return e, nil })
}
