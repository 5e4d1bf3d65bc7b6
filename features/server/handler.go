package server

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler serves a session's requests.
type handler struct{ session *Session }

// ServeRequest implements conn.Handler.
func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	version, offered := h.session.agreed()
	switch {
	case in.Method == protocol.MethodInitialize:
		return serve(ctx, in, h.session.initialize)
	case version == "":
		return nil, refuse(jsonrpc.CodeInvalidRequest, "%s before initialize", shorten(in.Method, longestName))
	case in.Method == protocol.MethodListTools && offered.Tools != nil:
		return serve(ctx, in, h.session.listTools)
	case in.Method == protocol.MethodCallTool && offered.Tools != nil:
		return serve(ctx, in, h.session.callTool)
	default:
		return nil, refuse(jsonrpc.CodeMethodNotFound, "method not found: %s", shorten(in.Method, longestName))
	}
}

// ServeNotification implements conn.Handler. Nothing waits for "initialized":
// a client that calls before it is served all the same.
func (handler) ServeNotification(context.Context, *conn.Incoming) {}

// serve decodes the params, runs the method and encodes its result.
func serve[P, R any](ctx context.Context, in *conn.Incoming, method func(context.Context, *P) (*R, error)) (json.RawMessage, error) {
	params := new(P)
	if err := protocol.Unmarshal(in.Params, params); err != nil {
		return nil, refuse(jsonrpc.CodeInvalidParams, "%s: %s", in.Method, misfit(err))
	}
	result, err := method(ctx, params)
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Marshal(result)
	if err != nil {
		return nil, refuse(jsonrpc.CodeInternalError, "%s: the result cannot be encoded: %s", in.Method, misfit(err))
	}
	return raw, nil
}
