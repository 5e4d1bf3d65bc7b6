package client

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// The connection cannot see the subscriptions of a legacy session, so the dialect
// reports that the client waits for messages of the server.
//
// Guarantees: G-0025.7
func TestLegacySubscriptionAwaitsTheServer(t *testing.T) {
	ctx := t.Context()
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil },
	})
	defer s.Close(ctx)
	server.AddResource(s, protocol.Resource{URI: "test://a", Name: "a"},
		func(context.Context) (string, error) { return "", nil })
	session, err := New(protocol.Implementation{Name: "c", Version: "1"}, Options{ProtocolVersion: protocol.LatestLegacy}).
		Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(ctx)
	for _, step := range []struct {
		do    func() error
		waits bool
	}{
		{func() error { return nil }, false},
		{func() error { return session.Subscribe(ctx, &protocol.SubscribeParams{URI: "test://a"}) }, true},
		{func() error { return session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "test://a"}) }, false},
	} {
		if err := step.do(); err != nil || session.dialect.Awaits() != step.waits {
			t.Fatalf("got %v and Awaits() = %v, want %v", err, session.dialect.Awaits(), step.waits)
		}
	}
}
