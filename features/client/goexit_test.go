package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A tool that ends its goroutine is answered with an internal error, and takes no place: neither of a
// handler, nor of the goroutine that reads. Other tools still work after more such calls than may run at
// a time.
//
// Guarantees: G-0009.13
func TestToolThatEndsItsGoroutineIsAnswered(t *testing.T) {
	leavingServer := func() *server.Server {
		s := crowdServer()
		server.AddTool(s, protocol.Tool{Name: "leave"}, func(context.Context, struct{}) (string, error) {
			runtime.Goexit()
			return "", nil
		})
		return s
	}
	for name, to := range map[string]func(t *testing.T) transport.Transport{
		"in memory": func(t *testing.T) transport.Transport {
			n := &network{server: leavingServer()}
			t.Cleanup(n.close)
			return n.transport()
		},
		"pipes": func(t *testing.T) transport.Transport {
			in, toServer := io.Pipe()
			fromServer, out := io.Pipe()
			served := make(chan error)
			go func() { served <- leavingServer().Run(context.Background(), stdio.Pair(in, out)) }()
			t.Cleanup(func() {
				if err := <-served; err != nil {
					t.Errorf("the server ended with %v, want nil", err)
				}
			})
			return stdio.Pair(fromServer, toServer)
		},
		"http": func(t *testing.T) transport.Transport {
			return &streamable.Client{URL: "http://" + newSite(t, leavingServer()).address}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := timeoutContext(t)
			session, err := client.New(clientInfo, client.Options{}).Connect(ctx, to(t))
			if err != nil {
				t.Fatal(err)
			}
			echo := func() {
				t.Helper()
				if _, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 { // so that later handlers may run on the goroutine that reads
				echo()
			}
			for range 300 {
				_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "leave"})
				if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}) {
					t.Fatalf("got %v, want the error %d", err, jsonrpc.CodeInternalError)
				}
			}
			echo()
			if err := session.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
