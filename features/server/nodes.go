package server

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
)

// Changes carries changes between the nodes that serve one endpoint. Implementations must be
// safe for concurrent use; stores.ChangesContract of package proptest/stores checks one. A
// Server calls Subscribe once, in New, and stop when it has closed. It publishes each list,
// resource and task at most once in 10 ms, and what is left when it closes.
type Changes interface {
	// Publish tells all other nodes of a change. It must not block. The change may be lost
	// on the way; the nodes that may have missed it then receive a Change with Missed.
	Publish(c Change)

	// Subscribe calls f, one call at a time, with each change that another node has
	// published since Subscribe returned, in the order of each publisher. After stop has
	// returned, f is not called.
	Subscribe(f func(Change)) (stop func())
}

// A Change is what has changed on a node.
type Change struct {
	Tools, Prompts, Resources bool   // the lists that have changed
	URI                       string // the resource that has changed; "" for none
	Task                      string // the task whose status has changed; "" for none

	// Missed says that any changes may have been missed, so everything may have changed. The
	// other fields are zero. A Server publishes it in place of more than 1,024 changes.
	Missed bool
}

// joinNodes connects the server with the other nodes, if there are any.
func (s *Server) joinNodes() {
	carrier := s.options.Changes
	if carrier == nil {
		return
	}
	s.subscriptions.Join(changes.Network{
		Publish: func(m changes.Message) { carrier.Publish(Change(m)) },
		Subscribe: func(receive func(changes.Message)) (stop func()) {
			return carrier.Subscribe(func(c Change) { receive(changes.Message(c)) })
		},
		Guard: s.guarded,
	})
}

// leaveNodes publishes what has changed until now, and ends the subscription. It waits as
// places.Await does.
func (s *Server) leaveNodes(ctx context.Context, grace time.Duration) []string {
	ending := s.subscriptions.Leave()
	if ending == nil {
		return nil
	}
	return places.Await(ctx, grace, ending, func() []string { return []string{"Changes"} })
}
