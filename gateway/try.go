package gateway

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// Call calls a tool, by the name that clients use. It is a client of this gateway for as long as the call takes, so it has no way of its own: what
// no client may call, or not now, is refused as theirs would be. No policy limits it, and a record names the person as Admin. A server that asks something is told that this client cannot be asked.
func (g *Gateway) Call(ctx context.Context, tool string, arguments json.RawMessage) (result json.RawMessage, err error) {
	params, err := protocol.Marshal(&protocol.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	o := client.Options{ProtocolVersion: protocol.Latest, FailFast: true, CacheBytes: -1}
	o.Conn.Log = g.log()
	person := client.New(protocol.Implementation{Name: Admin, Version: g.options.Info.Version}, o)
	defer person.Close(context.WithoutCancel(ctx))
	session, err := person.Connect(ctx, inmem.New(func(link transport.Link) { g.server.Accept(&personalLink{link}) }, inmem.Options{}))
	if err != nil {
		return nil, err
	}
	return session.Relay(ctx, protocol.MethodCallTool, params)
}
