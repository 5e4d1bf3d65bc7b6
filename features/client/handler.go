package client

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler serves what the server asks and tells. Pings are answered by the
// dialect, and nothing else is offered to servers yet.
type handler struct{ session *session }

// ServeRequest implements conn.Handler.
func (handler) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
}

// ServeNotification implements conn.Handler. What changed before a subscription
// was acknowledged has been told to nobody.
func (h handler) ServeNotification(ctx context.Context, in *conn.Incoming) {
	switch in.Method {
	case protocol.NotificationToolsListChanged, protocol.NotificationAcknowledged:
		h.session.toolsChanged()
	}
	if tell := h.session.client.options.OnNotification; tell != nil {
		tell(ctx, &Session{session: h.session}, Notification{Method: in.Method, Params: in.Params})
	}
}
