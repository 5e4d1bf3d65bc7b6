// Package inmem carries frames between two peers in one process, without
// copying them and without a goroutine of its own.
package inmem

import (
	"context"

	"github.com/bowline-mcp/bowline/transport"
)

// New returns a transport whose every Open makes a pipe: one end is given to
// accept, in the goroutine of Open and before it returns; the other is
// returned. Both ends are owned, and closed, by those who got them. It panics
// when accept is nil.
func New(accept func(transport.Link), options Options) transport.Transport {
	if accept == nil {
		panic("inmem: New needs an accept function")
	}
	return &acceptor{accept, options}
}

type acceptor struct {
	accept  func(transport.Link)
	options Options
}

func (a *acceptor) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ours, theirs := Pipe(a.options)
	a.accept(theirs)
	return ours, nil
}
