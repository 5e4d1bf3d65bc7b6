// Package server is an MCP server: tools made of Go functions, served to many
// clients, of every revision of the protocol.
//
//	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
//	server.AddTool(s, protocol.Tool{Name: "add"}, func(ctx context.Context, call *server.ToolCall, in Numbers) (Sum, error) {
//		return Sum{in.A + in.B}, nil
//	})
//	err := s.Serve(ctx, &stdio.Server{})
//
// or, over HTTP,
//
//	http.Handle("/mcp", streamable.NewHandler(s, streamable.HandlerOptions{}))
//
// Each request is served beside the others. Its context ends when the client
// cancels the request or is gone. A panic is answered as an internal error; the
// server lives on.
//
// The same tools serve both eras: clients that open a session by initialize,
// and those of 2026-07-28, whose requests each stand alone (ADR-0020).
package server
