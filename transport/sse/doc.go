// Package sse carries MCP over HTTP+SSE, the HTTP transport of revision 2024-11-05.
// Later revisions replaced it by Streamable HTTP, see package streamable: use this
// package for servers and clients that have nothing else.
//
// [Client] is a transport.Transport for programs that call an MCP server. [Handler]
// is an http.Handler for programs that are one.
//
// A session is one GET request whose response is a stream of events. The first
// event, of type endpoint, names the address to which the client POSTs its messages.
// The messages of the server, responses included, come on the stream. The end of the
// stream is the end of the session: nothing can be resumed. So a link has one
// stream, transport.Main.
//
// The package retries and reconnects nothing, see package conn. See
// docs/adr/0034-http-sse.md.
package sse
