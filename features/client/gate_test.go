package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// Servers that hang are asked by as many sessions at once as the gate has
// places, and by as many more with each hold; a server that answers is reached
// behind them.
//
// Guarantees: G-0027.7
func TestSessionsOfAClientShareAGate(t *testing.T) {
	for name, c := range map[string]struct {
		gate    *conn.Gate
		places  int
		clients int
	}{
		"its own":                   {nil, 64, 1},
		"one that it was given":     {&conn.Gate{Places: 2}, 2, 1},
		"one that others have, too": {&conn.Gate{Places: 3}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Options{Gate: c.gate}}
				var clients []*client.Client
				for range c.clients {
					clients = append(clients, client.New(clientInfo, o))
				}
				ctx, cancel := context.WithCancel(t.Context())
				silent, over := &fakeServer{answer: func(frame) []string { return nil }}, make(chan error)
				t.Cleanup(silent.close)
				for i := range c.places + 1 {
					go func() {
						_, err := clients[i%c.clients].Connect(ctx, silent)
						over <- err
					}()
				}
				synctest.Wait()
				if got := len(silent.received(protocol.MethodInitialize)); got != c.places {
					t.Errorf("%d sessions began at once", got)
				}
				good := answering(nil)
				t.Cleanup(good.close)
				began := time.Now()
				session, err := clients[0].Connect(t.Context(), good)
				if err != nil || time.Since(began) > time.Second {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
				cancel()
				for range c.places + 1 {
					if err := <-over; err == nil {
						t.Error("a server that is silent has answered")
					}
				}
				if err := session.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
