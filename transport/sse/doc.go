// Package sse carries MCP over HTTP+SSE, the HTTP transport of revision 2024-11-05.
// Later revisions replaced it by Streamable HTTP; see package streamable. Use this
// package only for peers that do not support Streamable HTTP.
//
// [Client] is a client's transport to one server. [Handler] is an http.Handler that
// serves clients.
//
// A session is one GET request whose response is a stream of events. The first event,
// of type endpoint, contains the address to which the client POSTs its messages. The
// server sends all its messages, including responses, on that stream. When the stream
// ends, the session ends: it cannot be resumed. So a link has one stream,
// transport.Main.
//
// # Goroutines
//
// A client's link has one that reads the stream of events, one that POSTs while messages are
// queued, and one for each POST that is slow; they are reused for a moment, and Close waits for them. A Handler has none: it works on
// those that net/http has for its requests.
//
// The package never retries or reconnects; package conn does. See
// docs/adr/0034-http-sse.md.
package sse
