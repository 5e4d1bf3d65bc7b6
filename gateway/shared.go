package gateway

import "context"

// A Shared is a small store of all gateways of a cluster, of values that have 255 KiB at most. Its methods may be called from any goroutine. What it keeps can pin a tool to any definition, so nobody
// else must be able to write it.
type Shared interface {
	// Load returns the value of a key and its revision; none and 0 if there is none. It may be an older one: only Save decides.
	Load(ctx context.Context, key string) (value []byte, revision uint64, err error)

	// Save replaces the value with a revision, or creates it with revision 0. It reports false if the key has another value by now.
	Save(ctx context.Context, key string, value []byte, revision uint64) (saved bool, err error)

	// Watch calls f with each value that there is, then with nil, and then with each value that is saved, until ctx ends. When it may have missed something, it
	// begins again. An error says that it could not begin; it is called again then.
	Watch(ctx context.Context, f func(value []byte)) error
}
