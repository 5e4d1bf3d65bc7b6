// Package dialect tells a Conn what MCP means by a message.
package dialect

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Legacy is the dialect of the revisions that begin with a handshake. The zero
// value is ready to use, and safe for concurrent use.
type Legacy struct {
	batches atomic.Bool
}

// Negotiated says which revision is spoken from here on: one of them has batches.
func (d *Legacy) Negotiated(version string) {
	d.batches.Store(version == protocol.Version20250326)
}

// Batches implements conn.Dialect.
func (d *Legacy) Batches() bool { return d.batches.Load() }

// Classify implements conn.Dialect. A notification that it cannot read is
// ordinary: the handler ignores it, as the specification asks.
func (d *Legacy) Classify(m *jsonrpc.Message) conn.Class {
	switch {
	case m.Kind == jsonrpc.KindRequest && m.Method == protocol.MethodPing:
		return conn.Class{Kind: conn.Probe, Answer: json.RawMessage("{}")}
	case m.Kind == jsonrpc.KindRequest && m.Method == protocol.MethodInitialize:
		return conn.Class{Kind: conn.Exclusive} // what a client sends right behind it belongs to the session it opens
	case m.Kind != jsonrpc.KindNotification:
		return conn.Class{}
	case m.Method == protocol.NotificationProgress:
		return classifyProgress(m.Params)
	case m.Method == protocol.NotificationCancelled:
		return classifyCancelled(m.Params)
	default:
		return conn.Class{}
	}
}

func classifyProgress(params json.RawMessage) conn.Class {
	var progress struct {
		Token jsonrpc.ID `json:"progressToken"`
	}
	if protocol.Unmarshal(params, &progress) != nil || progress.Token.IsZero() {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Progress, Request: progress.Token}
}

func classifyCancelled(params json.RawMessage) conn.Class {
	var cancelled protocol.CancelledParams
	if protocol.Unmarshal(params, &cancelled) != nil || cancelled.RequestID.IsZero() {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Cancellation, Request: cancelled.RequestID}
}

// Cancel implements conn.Dialect. The peer learns whether time ran out, and
// nothing else of why: a context's cause is the program's own.
func (d *Legacy) Cancel(id int64, why error) []byte {
	reason := "cancelled"
	if errors.Is(why, conn.ErrTimedOut) || errors.Is(why, context.DeadlineExceeded) {
		reason = "timed out"
	}
	params := append([]byte(`{"requestId":`), jsonrpc.IntegerID(id).Append(nil)...)
	params = append(params, `,"reason":"`+reason+`"}`...)
	return jsonrpc.AppendNotification(nil, protocol.NotificationCancelled, params)
}
