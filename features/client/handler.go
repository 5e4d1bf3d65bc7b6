package client

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler serves what the server asks and tells: nothing yet. Pings are
// answered by the dialect.
type handler struct{}

func (handler) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
}

func (handler) ServeNotification(context.Context, *conn.Incoming) {}
