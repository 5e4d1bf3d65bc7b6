package server

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
)

// joinNodes connects the server with the other nodes, if there are any.
// It is called once, at the end of New, because a change may come in before Subscribe returns.
func (s *host) joinNodes() {
	carrier := s.options.Changes
	if carrier == nil {
		return
	}
	s.hub.Join(changes.Network{
		Publish: func(m changes.Message) { carrier.Publish(Change(m)) },
		Subscribe: func(receive func(changes.Message)) (stop func()) {
			return carrier.Subscribe(func(c Change) { receive(changes.Message(c)) })
		},
		Guard: s.guarded,
	})
}

// leaveNodes publishes what has changed until now, and ends the subscription. It waits as
// places.Await does.
func (s *host) leaveNodes(ctx context.Context, grace time.Duration) []string {
	ending := s.hub.Leave()
	if ending == nil {
		return nil
	}
	return places.Await(ctx, grace, ending, func() []string { return []string{"Changes"} })
}
