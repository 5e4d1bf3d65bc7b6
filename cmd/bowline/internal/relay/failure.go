//bowline:pure

package relay

import (
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// failure returns the answer to a request that no gateway has answered. A tool answers with a result, so that the model reads it, as a gateway
// does for a server that is away.
func failure(id jsonrpc.ID, c *call, d conn.Delivery, why string) []byte {
	text := "the gateway is away: " + why + ". It may have been executed"
	if d == conn.NotSent {
		text = "the gateway is away: " + why + ". It was not executed"
	}
	outcome, err := protocol.Marshal(gateway.Outcome{State: conn.Backoff, Reason: why, Delivery: d})
	if err == nil && c.method == protocol.MethodCallTool && !c.task {
		result := &protocol.CallToolResult{Content: protocol.Contents{protocol.Text(text)}, IsError: true}
		result.Meta = protocol.Meta{gateway.MetaOutcome: outcome}
		if c.modern {
			result.Stamp(nil)
		}
		if raw, err := protocol.Marshal(result); err == nil {
			return jsonrpc.AppendResult(nil, id, raw)
		}
	}
	return jsonrpc.AppendError(nil, id, &jsonrpc.Error{
		Code: jsonrpc.CodeInternalError, Message: text, Data: []byte(`{"` + gateway.MetaOutcome + `":` + string(outcome) + `}`),
	})
}
