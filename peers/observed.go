package peers

import (
	"context"

	"github.com/bowline-mcp/bowline/transport"
)

// observeKey is the context key of the function that watches the transports of Bowline's
// clients.
type observeKey struct{}

// withObserver returns a context with which Bowline's clients connect through the transport
// that watch returns.
func withObserver(ctx context.Context, watch func(transport.Transport) transport.Transport) context.Context {
	return context.WithValue(ctx, observeKey{}, watch)
}

// observed returns the transport for one of Bowline's clients. It is watched if ctx
// comes from watching.
func observed(ctx context.Context, t transport.Transport) transport.Transport {
	if watch, ok := ctx.Value(observeKey{}).(func(transport.Transport) transport.Transport); ok {
		return watch(t)
	}
	return t
}
