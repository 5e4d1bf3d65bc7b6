package streamable

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Headers of MCP (2026-07-28 basic/transports/streamable-http).
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerResume  = "Last-Event-ID"
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// A message is what HTTP has to know of a frame.
type message struct {
	jsonrpc.Message
	routed routed
	meta   meta
}

// routed are the members of params that are mirrored in headers, or decide
// where a message goes. Each is looked at alone: one that is of the wrong type
// is not there.
type routed struct {
	Name json.RawMessage `json:"name"`
	URI  json.RawMessage `json:"uri"`
	Meta json.RawMessage `json:"_meta"`
}

// meta are the members of _meta that make a message a modern one.
type meta struct {
	Version      json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
}

// read decodes a frame. Params that cannot be read are left to whoever they
// are for: they route nothing.
func read(frame []byte) (message, error) {
	decoded, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
	if err != nil {
		return message{}, err
	}
	m := message{Message: decoded}
	if decode(m.Params, &m.routed) {
		decode(m.routed.Meta, &m.meta)
	}
	return m, nil
}

// decode reports whether there is a value, and it could be read.
func decode(raw json.RawMessage, into any) bool {
	return len(raw) > 0 && protocol.Unmarshal(raw, into) == nil
}

// modern reports whether the message says by itself which revision it speaks.
func (m *message) modern() bool { return len(m.meta.Version) > 0 }

// version is the revision a modern message speaks; empty when it is no string.
func (m *message) version() string { return text(m.meta.Version) }

// name is what the Mcp-Name header mirrors: none for most methods.
func (m *message) name() string {
	switch m.Method {
	case protocol.MethodCallTool, "prompts/get":
		return text(m.routed.Name)
	case "resources/read":
		return text(m.routed.URI)
	default:
		return ""
	}
}

func text(raw json.RawMessage) (s string) {
	decode(raw, &s)
	return s
}
