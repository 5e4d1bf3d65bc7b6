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

// The sessions of a client share a gate: as many sessions begin at once as the gate has
// places, and as many more after each hold. So a server that answers is reached even if
// many others hang.
//
// Guarantees: G-0027.7
func TestSessionsOfAClientShareAGate(t *testing.T) {
	for name, c := range map[string]struct {
		gate    *conn.Gate
		places  int
		clients int
	}{
		"its own":          {nil, 64, 1},
		"from the options": {&conn.Gate{Places: 2}, 2, 1},
		"shared":           {&conn.Gate{Places: 3}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Gate: c.gate}}
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
					t.Errorf("%d sessions began at once, want %d", got, c.places)
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
						t.Error("Connect to a silent server succeeded, want an error")
					}
				}
				if err := session.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
