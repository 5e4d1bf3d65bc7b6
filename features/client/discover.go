package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// errNoModernVersion is a server that answers server/discover and speaks no
// modern revision that this client does.
var errNoModernVersion = errors.New("client: no modern revision in common")

// discover makes an incarnation ready for the modern revisions. Nothing is
// agreed on: the server says what it is, and every request says all of its
// client (2026-07-28 server/discover).
func (s *session) discover(ctx context.Context, incarnation *conn.Incarnation, patience time.Duration) error {
	members, err := s.client.context.Members()
	if err != nil {
		return err
	}
	params := new(protocol.DiscoverParams)
	params.AddMeta(members)
	asked, err := protocol.Marshal(params)
	if err != nil {
		return err
	}
	raw, err := incarnation.Call(ctx, conn.Request{
		Method: protocol.MethodDiscover, Params: asked, Version: s.client.context.ProtocolVersion,
		Timeout: patience, Silent: true, // a server that does not know the one knows nothing of the other
	})
	if err != nil {
		return err
	}
	result, err := decode(raw, true, named)
	if err != nil {
		return err
	}
	version := s.client.context.ProtocolVersion
	if !slices.Contains(result.SupportedVersions, version) {
		return s.nothingInCommon(result.SupportedVersions)
	}
	s.dialect.Negotiated(version, asked)
	return s.meet(ctx, &meeting{incarnation: incarnation, members: members, server: Server{
		ProtocolVersion: version,
		Info:            introduced(result.Meta),
		Capabilities:    result.Capabilities,
		Instructions:    result.Instructions,
	}})
}

// nothingInCommon is either the way to initialize, or the end.
func (s *session) nothingInCommon(theirs []string) error {
	if s.client.options.ProtocolVersion == "" && anyOf(theirs, protocol.IsLegacy) {
		return errNoModernVersion
	}
	return fmt.Errorf("%w: the server speaks %.200q, this client %s",
		conn.ErrIncompatible, theirs, strings.Join(protocol.Versions(), ", "))
}

func anyOf(versions []string, are func(string) bool) bool { return slices.ContainsFunc(versions, are) }

func named(result *protocol.DiscoverResult) error {
	if result.SupportedVersions == nil {
		return errors.New("it has no supportedVersions")
	}
	return nil
}

// introduced is the server's name, where it gives one that can be read.
func introduced(meta protocol.Meta) (info protocol.Implementation) {
	if raw, ok := meta[protocol.MetaServerInfo]; ok && protocol.Unmarshal(raw, &info) != nil {
		return protocol.Implementation{}
	}
	return info
}
