// Package streamable carries MCP over HTTP as the Streamable HTTP transport does:
// a [Client] is the client's side, a [Handler] the server's. Both speak every
// revision that has this transport, 2025-03-26 to 2026-07-28. A handler reads from
// each message which revision it belongs to.
//
// Every request that is POSTed has a stream of its own, with its own credit; the
// response to it comes back on that stream. [transport.Main] carries all other
// messages. Those to the server are POSTed one by one; those to the client come on
// the stream that the client of a session opens with GET.
//
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
// and, for sessions, the same page of 2025-11-25. ADR-0022 and ADR-0028 say what
// the package guarantees.
package streamable
