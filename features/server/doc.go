// Package server is an MCP server. Its tools, resources and prompts are Go functions, and
// it serves clients of every protocol revision.
//
//	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
//	server.AddTool(s, protocol.Tool{Name: "add", Description: "adds two numbers"},
//		func(ctx context.Context, in Numbers) (int, error) { return in.A + in.B, nil })
//	err := s.Run(ctx, &stdio.Server{}) // until the client leaves, or ctx ends
//
// or, over HTTP,
//
//	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
//	http.Handle("/mcp", endpoint)
//	err := endpoint.ListenAndServe(ctx, &http.Server{Addr: ":8080", Handler: http.DefaultServeMux})
//
// A feature is an ordinary function. AddTool, AddPrompt, AddResource, AddTemplate and
// AddMethod say which types its arguments and results may have. Inside a handler, call
// these functions with its context:
//
//   - RequestFrom returns who calls, in which revision and from where.
//   - Progress and Logger report to the client.
//   - Confirm, Elicit, ElicitURL, Sample, Roots and Ask ask the client something.
//
// Middleware wraps all messages. Options.Visible hides features from some clients.
//
// # Goroutines and contexts
//
// Handlers run concurrently, and a slow one delays no other. Over standard input, a quick
// handler may run on the goroutine that reads (ADR-0055). The context of a request ends,
// with a cause, when the client cancels the request, and when the client is gone. A legacy
// client over Streamable HTTP is gone when its session ends: if only its connection
// breaks, it can come back for the answer (ADR-0033). The values of the context are those
// of the HTTP request that carried this call, so handlers see what net/http middleware
// stored there. If a handler panics, the client gets an internal error, and the server
// keeps running. Server.Close returns when all handlers have returned. If one does not,
// its error names it.
//
// # Revisions
//
// The same features serve both eras of MCP: clients of the legacy revisions (up to
// 2025-11-25), which open a session by initialize, and clients of the modern revision
// 2026-07-28, in which every request stands alone (ADR-0020).
//
// docs/guide/server.md is a guide to this package, and docs/guarantees.md says how to
// list its guarantees.
package server
