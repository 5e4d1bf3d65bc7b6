// Package websocket carries MCP over WebSocket (RFC 6455). No revision of MCP has such a transport, so both sides must have agreed on it: use it
// where both are yours, or for the SDKs and gateways that have one. For all others use packages stdio and streamable.
//
// [Client] is a client's transport to one server. [Handler] is an http.Handler that serves clients.
//
// What the SDKs have in common is what this package speaks: the subprotocol "mcp", and one JSON-RPC message in each text message. One
// connection is one session. When it ends, the session ends: nothing is resumed, and there is no session id. How clients log in, which close
// statuses mean what, and which headers repeat what a message says, nobody has settled; see docs/adr/0108-websocket.md. The transport that was
// proposed (SEP-1288) is part of no revision.
//
// A link has one stream, transport.Main. It reads a message only for credit, and answers pings of its peer only while no message waits for
// credit. It writes long messages in pieces of 64 KiB, with the pongs between them. It sends no pings: package conn finds out whether a peer that is
// silent still lives.
//
// # Goroutines
//
// A link has one that reads, which for a Handler is that of the HTTP request, and one that writes. Close waits for both.
//
// The package never retries or reconnects; package conn does.
package websocket
