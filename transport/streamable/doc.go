// Package streamable carries JSON-RPC over HTTP as MCP's Streamable HTTP does:
// [Client] is the client's side, [Handler] the server's. Both speak every
// revision that has this transport, 2025-03-26 to 2026-07-28, and a handler
// tells from each message which one it is of.
//
// Every request that is POSTed is a stream of its own, with its own credit, and
// what answers it comes back on that stream. [transport.Main] carries what
// belongs to no request: to the server, notifications and responses that are
// POSTed; to the client, what comes on the stream that it has opened by GET.
//
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
// and, for sessions, the same page of 2025-11-25.
package streamable
