package server

import "github.com/bowline-mcp/bowline/protocol"

// A Client is who has made a request, as it says of itself: in the handshake
// of its session (legacy), or in the request (modern). It is not changed any
// more, and holds for that request alone.
type Client struct {
	ProtocolVersion string // spoken for this request
	Info            protocol.Implementation
	Capabilities    protocol.ClientCapabilities
}
