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
func (s *session) initialize(ctx context.Context, incarnation *conn.Incarnation) error {
	params, err := protocol.Marshal(protocol.InitializeParams{
		ProtocolVersion: s.client.options.ProtocolVersion,
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
	server, err := decode(raw, versioned)
	if err != nil {
		return err
	}
	if !protocol.IsLegacy(server.ProtocolVersion) {
		return fmt.Errorf("%w: the server speaks %q, this client %s",
			conn.ErrIncompatible, server.ProtocolVersion, strings.Join(protocol.LegacyVersions(), ", "))
	}
	s.dialect.Negotiated(server.ProtocolVersion)
	if err := incarnation.Notify(ctx, protocol.NotificationInitialized, nil); err != nil {
		return err
	}
	s.latest.Store(&handshake{incarnation, *server})
	return nil
}

func versioned(server *protocol.InitializeResult) error {
	if server.ProtocolVersion == "" {
		return errors.New("it has no protocolVersion")
	}
	return nil
}

// final is conn.Options.Final. A server that has never been there and cannot
// be, for lack of an executable or of a common revision, is not waited for;
// one that has been may be in the middle of an update.
func (s *session) final(why conn.Reason) bool {
	hopeless := why.Kind == conn.ExecutableMissing || why.Kind == conn.Incompatible
	switch own := s.client.options.Conn.Final; {
	case s.client.options.FailFast:
		return true
	case hopeless && s.latest.Load() == nil:
		return true
	default:
		return own != nil && own(why)
	}
}
