package client_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

const echoArguments = `{"message":"0123456789012345678901234567890123456789012345678901234567890123"}`

// echoing connects a client to a server with an echo tool, typed or raw.
func echoing(b *testing.B, raw bool) *client.Session {
	type message struct {
		Message string `json:"message"`
	}
	s := server.New(serverInfo, server.Options{})
	if raw {
		s.AddRawTool(protocol.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, call *server.ToolCall) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: string(call.Params.Arguments)}}}, nil
			})
	} else {
		server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, _ *server.ToolCall, in message) (string, error) {
			return in.Message, nil
		})
	}
	n := &network{server: s}
	session, err := client.New(clientInfo, client.Options{}).Connect(b.Context(), n.transport())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		session.Close(context.Background())
		n.close()
	})
	return session
}

func BenchmarkCallTool(b *testing.B) {
	for _, tool := range []struct {
		name string
		raw  bool
	}{{"raw", true}, {"typed", false}} {
		params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
		b.Run(tool.name+"/callers=1", func(b *testing.B) {
			session := echoing(b, tool.raw)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := session.CallTool(b.Context(), params); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(tool.name+"/callers=64", func(b *testing.B) {
			session := echoing(b, tool.raw)
			b.ReportAllocs()
			b.SetParallelism(32)
			var failed atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := session.CallTool(context.Background(), params); err != nil {
						failed.Add(1)
					}
				}
			})
			if failed.Load() > 0 {
				b.Fatalf("%d calls failed", failed.Load())
			}
		})
	}
}
