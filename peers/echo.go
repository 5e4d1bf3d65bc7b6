package peers

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// newEchoServer offers what is measured: echo, made of a Go function, and raw,
// which answers with its arguments as they came.
func newEchoServer() *server.Server {
	s := server.New(ourself, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo"},
		func(_ context.Context, in message) (string, error) { return in.Message, nil })
	server.AddTool(s, protocol.Tool{Name: "raw", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
			return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: string(params.Arguments)}}}, nil
		})
	return s
}

func serveEcho(ctx context.Context, _ []string) error {
	return newEchoServer().Serve(ctx, &stdio.Server{})
}

// connectEcho asks for the latest revision by asking for none, as users do.
func connectEcho(ctx context.Context, t transport.Transport, revision string) (*client.Session, error) {
	options := client.Options{ProtocolVersion: revision, FailFast: true}
	if revision == protocol.Latest {
		options.ProtocolVersion = ""
	}
	return client.New(ourself, options).Connect(ctx, t)
}
