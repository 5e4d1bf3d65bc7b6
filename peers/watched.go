package peers

import (
	"context"

	"github.com/bowline-mcp/bowline/transport"
)

// watchKey is the context key of the function that watches the transports of Bowline's
// clients.
type watchKey struct{}

// watching returns a context with which Bowline's clients connect through the transport
// that watch returns.
func watching(ctx context.Context, watch func(transport.Transport) transport.Transport) context.Context {
	return context.WithValue(ctx, watchKey{}, watch)
}

// watched returns the transport for one of Bowline's clients. It is watched if ctx
// comes from watching.
func watched(ctx context.Context, t transport.Transport) transport.Transport {
	if watch, ok := ctx.Value(watchKey{}).(func(transport.Transport) transport.Transport); ok {
		return watch(t)
	}
	return t
}
