// Package server is an MCP server: tools made of Go functions, served to many
// peers.
//
//	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
//	server.AddTool(s, protocol.Tool{Name: "add"}, func(ctx context.Context, call *server.ToolCall, in Numbers) (Sum, error) {
//		return Sum{in.A + in.B}, nil
//	})
//	err := s.Serve(ctx, &stdio.Server{})
//
// Each request runs in a goroutine of its own. Its context ends when the peer
// cancels the request or is gone. A panic is answered as an internal error; the
// server lives on.
package server
