package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// initialize is the handshake of the legacy revisions: it makes an incarnation
// ready, again after every reconnect. The request is never cancelled (2025-11-25
// basic/utilities/cancellation).
func (s *session) initialize(ctx context.Context, incarnation *conn.Incarnation) error {
	params, err := protocol.Marshal(protocol.InitializeParams{
		ProtocolVersion: s.client.options.ProtocolVersion,
		Capabilities:    s.client.options.Capabilities,
		ClientInfo:      s.client.info,
	})
	if err != nil {
		return err
	}
	raw, err := incarnation.Call(ctx, conn.Request{
		Method: protocol.MethodInitialize, Params: params,
		Timeout: -1, Silent: true, // the Conn's InitTimeout bounds it
	})
	if err != nil {
		return err
	}
	server := new(protocol.InitializeResult)
	if err := protocol.Unmarshal(raw, server); err != nil {
		return &ResultError{Method: protocol.MethodInitialize, Err: err}
	}
	if !protocol.IsLegacy(server.ProtocolVersion) {
		return fmt.Errorf("%w: the server speaks %q, this client %s",
			conn.ErrIncompatible, server.ProtocolVersion, strings.Join(protocol.LegacyVersions(), ", "))
	}
	s.dialect.Negotiated(server.ProtocolVersion)
	s.server.Store(server)
	return incarnation.Notify(ctx, protocol.NotificationInitialized, nil)
}
