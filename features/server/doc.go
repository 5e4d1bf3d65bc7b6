// Package server is an MCP server: tools, resources and prompts made of Go
// functions, for clients of every revision of the protocol.
//
//	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
//	server.AddTool(s, protocol.Tool{Name: "add", Description: "adds two numbers"},
//		func(ctx context.Context, in Numbers) (int, error) { return in.A + in.B, nil })
//	err := s.Serve(ctx, &stdio.Server{})
//
// or, over HTTP,
//
//	http.Handle("/mcp", streamable.NewHandler(s, streamable.HandlerOptions{}))
//
// A feature is a plain function: AddTool, AddPrompt, AddResource, AddTemplate and
// AddMethod say what its arguments and results may be. Everything else that a
// handler can do is a function of its context: RequestFrom says who asks, Progress
// and Logger report to the client, and Confirm, Elicit, ElicitURL, Sample, Roots
// and Ask ask it something. Middleware wraps all of it.
//
// Requests are served concurrently. The context of a request ends, with a cause,
// when the client cancels the request or is gone. The context's values are those
// of the HTTP request that brought this very call, so whatever middleware of
// net/http put there is there. A panic is answered as an internal error, and the
// server lives on.
//
// The same features serve both eras: clients that open a session by initialize,
// and those of 2026-07-28, whose requests each stand alone (ADR-0020).
package server
