// Package streamable carries MCP over HTTP, by the Streamable HTTP transport.
//
//   - [Client] is a client's transport to one endpoint.
//   - [Handler] is an http.Handler that serves clients.
//
// Both support every revision that has this transport, 2025-03-26 to 2026-07-28. A
// handler serves all of them at one URL. A client and a server:
//
//	session, err := c.Connect(ctx, &streamable.Client{URL: "https://example.com/mcp"})
//
//	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
//	http.Handle("/mcp", endpoint)
//	err := endpoint.ListenAndServe(ctx, &http.Server{Addr: ":8080", Handler: http.DefaultServeMux})
//
// Every request that is POSTed has a separate stream with separate credit. The response
// comes back on that stream. All other messages use [transport.Main]: the client POSTs
// its messages one by one, and the server sends its messages on the stream that the
// client of a session opens with GET.
//
// # Goroutines
//
// A client's link has one for each POST and each event stream that is under way, and none when
// nothing is: they are reused for a moment, and Close waits for them. A Handler has none: it serves
// on those that net/http has for its requests, so a session costs none while it is idle. Timers end
// idle sessions and save stored ones; FileSessions has one that writes.
//
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
// and, for sessions, the same page of 2025-11-25. ADR-0022 and ADR-0028 list the
// guarantees.
package streamable
