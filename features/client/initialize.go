package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// initialize is the handshake of the legacy revisions: it makes an incarnation
// ready, again after every reconnect. The request is never cancelled (2025-11-25
// basic/utilities/cancellation).
func (s *session) initialize(ctx context.Context, incarnation *conn.Incarnation, version string) error {
	params, err := protocol.Marshal(protocol.InitializeParams{
		ProtocolVersion: version,
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
	result, err := decode(raw, false, versioned)
	if err != nil {
		return err
	}
	if !protocol.IsLegacy(result.ProtocolVersion) {
		return fmt.Errorf("%w: the server speaks %q, this client %s",
			conn.ErrIncompatible, result.ProtocolVersion, strings.Join(protocol.Versions(), ", "))
	}
	s.dialect.Negotiated(result.ProtocolVersion, nil)
	if err := incarnation.Notify(ctx, protocol.NotificationInitialized, nil); err != nil {
		return err
	}
	return s.meet(ctx, &meeting{incarnation: incarnation, server: Server{
		ProtocolVersion: result.ProtocolVersion,
		Info:            result.ServerInfo,
		Capabilities:    result.Capabilities,
		Instructions:    result.Instructions,
	}})
}

func versioned(server *protocol.InitializeResult) error {
	if server.ProtocolVersion == "" {
		return errors.New("it has no protocolVersion")
	}
	return nil
}
