package server_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A client gets the answer of its one call even if all of its connections are cut while
// the tool runs, or the tool asks it to reconnect.
//
// Guarantees: G-0033.1, G-0033.6
func TestCallOutlivesItsConnection(t *testing.T) {
	for name, leave := range map[string]func(context.Context, *httptest.Server) bool{
		"cut": func(ctx context.Context, site *httptest.Server) bool {
			_ = server.Stream(ctx)
			server.Progress(ctx, 1, 2, "half")
			return true
		},
		"asked to reconnect": func(ctx context.Context, _ *httptest.Server) bool { return server.Poll(ctx, 50*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			runs, halfway, cut := 0, make(chan struct{}), make(chan struct{})
			var site *httptest.Server
			s := server.New(protocol.Implementation{Name: "resuming", Version: "1"}, server.Options{})
			server.AddTool(s, protocol.Tool{Name: "long"}, func(ctx context.Context, _ struct{}) (string, error) {
				runs++
				if !leave(ctx, site) {
					t.Error("got false, want the client to be asked to reconnect")
				}
				if name == "cut" {
					<-cut
				}
				server.Progress(ctx, 2, 2, "done")
				return "whole", nil
			})
			endpoint := streamable.NewHandler(s, streamable.HandlerOptions{Retry: 50 * time.Millisecond})
			site = httptest.NewServer(endpoint)
			defer site.Close()
			defer endpoint.Close(0)
			defer s.Close(context.Background())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: protocol.Version20251125}).
				Connect(ctx, &streamable.Client{URL: site.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			if name == "cut" {
				go func() {
					select {
					case <-halfway:
					case <-ctx.Done():
					}
					site.CloseClientConnections()
					close(cut)
				}()
			}
			var received []float64
			view := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) {
				if received = append(received, p.Progress); len(received) == 1 {
					close(halfway)
				}
			}})
			result, err := view.CallTool(ctx, &protocol.CallToolParams{Name: "long"})
			if err != nil || len(result.Content) != 1 || runs != 1 {
				t.Fatalf("%+v, %v, after %d runs", result, err, runs)
			}
			if received[len(received)-1] != 2 {
				t.Errorf("got progress %v, want 2", received)
			}
		})
	}
}
