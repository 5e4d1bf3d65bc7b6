package sharing

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A dialect is what a connection has to know of MCP to pass messages on. A ping is a request like
// any other: only the server itself can say that it is alive.
type dialect struct{}

// Classify implements conn.Dialect.
func (dialect) Classify(m jsonrpc.Message) conn.Class {
	if m.Kind == jsonrpc.KindRequest {
		return conn.Class{Kind: kindOf(m.Method)}
	}
	var about struct {
		Token     jsonrpc.ID `json:"progressToken"`
		RequestID jsonrpc.ID `json:"requestId"`
	}
	switch m.Method {
	case protocol.NotificationProgress:
		if protocol.Unmarshal(m.Params, &about) == nil && !about.Token.IsZero() {
			return conn.Class{Kind: conn.Progress, Request: about.Token}
		}
	case protocol.NotificationCancelled:
		if protocol.Unmarshal(m.Params, &about) == nil && !about.RequestID.IsZero() {
			return conn.Class{Kind: conn.Cancellation, Request: about.RequestID}
		}
	}
	return conn.Class{}
}

func kindOf(method string) conn.ClassKind {
	switch method {
	case protocol.MethodInitialize:
		return conn.Exclusive
	case protocol.MethodListen, protocol.MethodGetTaskResult:
		return conn.Streaming
	case protocol.MethodCreateMessage, protocol.MethodElicit, protocol.MethodListRoots:
		return conn.Nested
	default:
		return conn.Ordinary
	}
}

// Cancel implements conn.Dialect.
func (dialect) Cancel(id jsonrpc.ID, why error) conn.Message {
	reason := "cancelled"
	switch {
	case errors.Is(why, context.DeadlineExceeded):
		reason = "timed out"
	case errors.Is(why, conn.ErrDraining):
		reason = "closing"
	}
	params := append(id.Append([]byte(`{"requestId":`)), `,"reason":"`+reason+`"}`...)
	return conn.Message{Method: protocol.NotificationCancelled, Params: json.RawMessage(params)}
}

// Probe implements conn.Dialect: the clients probe the server.
func (dialect) Probe() conn.Message { return conn.Message{} }

// Batches implements conn.Dialect. A server of the revision with batches may send them.
func (dialect) Batches() bool { return true }
