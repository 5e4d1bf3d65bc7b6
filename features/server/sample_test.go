package server_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func sampleOf(t *testing.T, s *server.Server) (name string, sample *telemetry.ServerSample) {
	t.Helper()
	for one := range s.Samples() {
		if name, sample = one.Name, one.Server; sample == nil {
			t.Fatalf("the sample %+v is not of a server", one)
		}
	}
	return name, sample
}

// The sample of a server counts its connections by state, and what they have done. The
// counts include connections that have ended.
func TestSampleCountsEndedConnections(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{Conn: conn.Tuning{Name: "front"}})
		server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := server.Roots(ctx)
			return "asked", err
		}, server.Asks(server.Waits, protocol.ClientCapabilities{Roots: new(protocol.RootsCapability)}))
		var clients []*client.Client
		for range 3 {
			c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
				ProtocolVersion: protocol.LatestLegacy,
				Roots:           func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
			})
			session, err := c.Connect(t.Context(), specification.WatchClient(t, inmem.New(s.Accept, inmem.Options{})))
			if err != nil {
				t.Fatal(err)
			}
			if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "ask"}); err != nil || result.IsError {
				t.Fatal(result, err)
			}
			clients = append(clients, c)
		}
		synctest.Wait()
		check := func(ready int) uint64 {
			t.Helper()
			name, sample := sampleOf(t, s)
			conns := 0
			for _, c := range sample.Conns {
				if c.State != string(conn.Ready) {
					t.Errorf("got connections %+v, want none", c)
				}
				conns += c.Count
			}
			if settled := sample.Total.Settled; len(settled) != 1 || settled[0] != (telemetry.Settled{Cause: "answered", Delivery: "sent", Count: 3}) {
				t.Errorf("got ended questions %+v", settled)
			}
			if name != "front" || conns != ready || sample.Total.Calls != 3 || sample.Total.InFlight != 0 || sample.Total.BytesIn == 0 {
				t.Errorf("the sample of %q: got %+v", name, sample)
			}
			return sample.Total.BytesIn
		}
		before := check(3)
		for _, c := range clients[:2] {
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if after := check(1); after < before {
			t.Errorf("got %d bytes in after the session had ended, want %d", after, before)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(0)
		clients[2].Close(t.Context())
	})
}
