package server

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/protocol"
)

// serveModern serves a request that stands alone: nothing that came before it
// counts, on this link or another (2026-07-28 basic/index).
func (r *request) serveModern(ctx context.Context, said *protocol.RequestContext) (json.RawMessage, error) {
	versions := r.server.options.ProtocolVersions
	if !protocol.IsModern(said.ProtocolVersion) || !slices.Contains(versions, said.ProtocolVersion) {
		return nil, protocol.UnsupportedVersion(said.ProtocolVersion, versions)
	}
	r.modern, r.offered = true, r.server.modernCapabilities()
	r.client = &Client{ProtocolVersion: said.ProtocolVersion, Capabilities: said.ClientCapabilities}
	if said.ClientInfo != nil {
		r.client.Info = *said.ClientInfo
	}
	return r.run(ctx, r.modernMethod())
}

func (r *request) modernMethod() method {
	switch {
	case r.Method == protocol.MethodDiscover:
		return serve((*request).discover)
	case r.Method == protocol.MethodListen && r.offered.Tools != nil:
		return serve((*request).listen)
	default:
		return r.shared()
	}
}

// discover says what the server is (2026-07-28 server/discover).
func (r *request) discover(context.Context, *protocol.DiscoverParams) (*protocol.DiscoverResult, error) {
	return &protocol.DiscoverResult{
		SupportedVersions: r.server.options.ProtocolVersions,
		Capabilities:      r.offered,
		Instructions:      r.server.options.Instructions,
	}, nil
}
