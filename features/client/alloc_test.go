//go:build !race

package client_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A call in memory allocates no more than this for client, server and transport
// together, the handler's own and the result included. The race detector
// allocates too, so it is not asked.
//
// Guarantees: G-0049.3
func TestCallAllocates(t *testing.T) {
	structured := func(_ context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		return &protocol.CallToolResult{StructuredContent: params.Arguments}, nil
	}
	for _, c := range []struct {
		name, version string
		add           func(*server.Server)
		most          float64
	}{
		{"raw", protocol.LatestLegacy, func(s *server.Server) {
			server.AddTool(s, protocol.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, structured)
		}, 11},
		{"typed", protocol.LatestLegacy, addEcho, 13},
		{"typed, modern", protocol.Latest, addEcho, 19},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server.New(serverInfo, server.Options{})
			c.add(s)
			n := &network{server: s}
			defer n.close()
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: c.version}).Connect(t.Context(), n.transport())
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
			allocated := testing.AllocsPerRun(2000, func() {
				if _, err := session.CallTool(context.Background(), params); err != nil {
					t.Fatal(err)
				}
			})
			if allocated > c.most {
				t.Fatalf("%v allocations, of %v at most", allocated, c.most)
			}
		})
	}
}
