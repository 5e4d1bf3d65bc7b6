package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A site is a place for a server in memory, and the transport to that server. The server
// can be down.
type site struct {
	name    string
	holding chan<- struct{}
	release <-chan struct{}

	mu     sync.Mutex
	server *server.Server // nil while it is down
}

// Open implements transport.Transport.
func (s *site) Open(context.Context) (transport.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil, fmt.Errorf("%s is down", s.name)
	}
	ours, theirs := inmem.Pipe(inmem.Options{})
	s.server.Accept(theirs)
	return ours, nil
}

func (s *site) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server.New(protocol.Implementation{Name: s.name, Version: "1.0"}, server.Options{})
	type nothing struct{}
	server.AddTool(s.server, protocol.Tool{Name: "name", Description: "returns the name of the server"},
		func(context.Context, nothing) (string, error) { return s.name, nil })
	server.AddTool(s.server, protocol.Tool{Name: "hold", Description: "runs until it is released"},
		func(ctx context.Context, _ nothing) (string, error) {
			select {
			case s.holding <- struct{}{}:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			select {
			case <-s.release:
				return "done", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
}

func (s *site) stop(ctx context.Context) error {
	s.mu.Lock()
	old := s.server
	s.server = nil
	s.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.Close(ctx)
}
