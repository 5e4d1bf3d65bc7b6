// Package bowline contains nothing but this page: it leads to the packages of Bowline, MCP
// clients and servers for Go with connections that recover by themselves.
//
// # A server
//
// Package [github.com/bowline-mcp/bowline/features/server] serves Go functions as tools, and
// resources, prompts and skills, to clients of every revision of MCP:
//
//	s := server.New(protocol.Implementation{Name: "adder", Version: "1.0"}, server.Options{})
//	server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, n struct{ A, B int }) (int, error) {
//		return n.A + n.B, nil
//	})
//	err := s.Run(ctx, &stdio.Server{})
//
// For many clients over HTTP, give s to [github.com/bowline-mcp/bowline/transport/streamable.NewHandler].
//
// # A client
//
// Package [github.com/bowline-mcp/bowline/features/client] calls servers. A session outlives its
// server: when a child process crashes or a connection breaks, it reconnects and restores what it
// had. Every call ends exactly once, and a failed one says whether the server may have executed it:
//
//	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
//	session, err := c.Connect(ctx, &stdio.Command{Path: "./adder"})
//	...
//	sum, err := client.Call[int](ctx, session, "add", map[string]int{"A": 2, "B": 3})
//	if client.NotExecuted(err) {
//		// it is safe to call again
//	}
//
// For a server over HTTP, connect to a streamable.Client; for the servers of an mcp.json file, use
// [github.com/bowline-mcp/bowline/mcpjson/sessions].
//
// # What else there is
//
//   - Transports: [github.com/bowline-mcp/bowline/transport/stdio],
//     [github.com/bowline-mcp/bowline/transport/streamable], [github.com/bowline-mcp/bowline/transport/sse]
//     and [github.com/bowline-mcp/bowline/transport/inmem]. To write one, implement
//     [github.com/bowline-mcp/bowline/transport.Transport], and test it with
//     [github.com/bowline-mcp/bowline/proptest].
//   - OAuth: [github.com/bowline-mcp/bowline/auth] for clients,
//     [github.com/bowline-mcp/bowline/auth/resource] for servers.
//   - Many connections in a process: [github.com/bowline-mcp/bowline/supervisor] starts, restarts and stops
//     them. Many nodes behind one URL: [github.com/bowline-mcp/bowline/cluster]. All servers of an mcp.json file at one
//     endpoint: [github.com/bowline-mcp/bowline/gateway].
//   - Observation: [github.com/bowline-mcp/bowline/telemetry], and sinks for OpenTelemetry, slog and zap below it.
//   - Tests of your own clients and servers: [github.com/bowline-mcp/bowline/mcptest].
//   - A single connection for any JSON-RPC protocol: [github.com/bowline-mcp/bowline/conn].
//
// The README has more programs, docs/guide has a guide for each task, and docs/adr says why Bowline
// is built this way, and what it guarantees.
package bowline
