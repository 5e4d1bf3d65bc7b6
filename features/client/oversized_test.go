package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A response above the client's size limit fails its call at once, because it would be
// too large each time. Watch ends with the error.
//
// Guarantees: G-0023.3
func TestOversizedResponseIsNotRetried(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		const limit = 1 << 16
		var reads atomic.Int32
		s := server.New(serverInfo, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
		server.AddResource(s, protocol.Resource{Name: "large", URI: "x://large"}, func(ctx context.Context) (string, error) {
			reads.Add(1)
			server.Logger(ctx).Warn("this makes the answer a stream")
			return strings.Repeat("x", 2*limit), nil
		})
		session, err := client.New(clientInfo, client.Options{ProtocolVersion: version, LogLevel: protocol.LogWarning}).
			Connect(timeoutContext(t), &streamable.Client{URL: "http://" + newSite(t, s).address, MaxFrame: limit})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())
		check := func(err error) {
			t.Helper()
			if !errors.As(err, new(*transport.OversizedError)) || client.NotExecuted(err) || reads.Swap(0) != 1 {
				t.Errorf("got %v", err)
			}
		}
		_, err = session.With(client.CallOptions{Retries: -1}).ReadResource(timeoutContext(t), &protocol.ReadResourceParams{URI: "x://large"})
		check(err)
		for _, err := range session.Watch(timeoutContext(t), "x://large") {
			check(err)
		}
	})
}
