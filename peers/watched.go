package peers

import (
	"context"

	"github.com/bowline-mcp/bowline/transport"
)

// watchKey is the key of what watches the transports of our clients.
type watchKey struct{}

// watching returns a context under which our clients connect through what watch returns.
func watching(ctx context.Context, watch func(transport.Transport) transport.Transport) context.Context {
	return context.WithValue(ctx, watchKey{}, watch)
}

// watched returns the transport of one of our clients, watched if ctx says so.
func watched(ctx context.Context, t transport.Transport) transport.Transport {
	if watch, ok := ctx.Value(watchKey{}).(func(transport.Transport) transport.Transport); ok {
		return watch(t)
	}
	return t
}
