package server

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// serveLegacy serves a request of the session that initialize has opened.
func (s *session) serveLegacy(ctx context.Context, r *request) (json.RawMessage, error) {
	if r.Method == protocol.MethodInitialize {
		return r.run(ctx, serve(s.initialize))
	}
	agreed := s.agreed.Load()
	if agreed == nil {
		return nil, r.refuseStranger()
	}
	r.client, r.offered = &agreed.client, agreed.offered
	return r.run(ctx, r.shared())
}

// refuseStranger refuses a request of which nothing says what revision it speaks.
func (r *request) refuseStranger() error {
	method := shorten(r.Method, longestName)
	if !r.server.speaksLegacy() {
		return refuse(jsonrpc.CodeInvalidParams, "%s: _meta: %s is missing", method, protocol.MetaProtocolVersion)
	}
	return refuse(jsonrpc.CodeInvalidRequest, "%s before initialize", method)
}

// initialize agrees on a revision (2025-11-25 basic/lifecycle). A session has
// one.
func (s *session) initialize(r *request, _ context.Context, params *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	supported := r.server.options.ProtocolVersions
	version := protocol.Negotiate(params.ProtocolVersion, supported)
	switch {
	case params.ProtocolVersion == "":
		return nil, refuse(jsonrpc.CodeInvalidParams, "initialize: protocolVersion is missing")
	case version == "":
		return nil, refuse(jsonrpc.CodeInvalidRequest, "there is no initialize in what this server speaks: %s", strings.Join(supported, ", "))
	}
	agreed := &agreement{
		client:  Client{ProtocolVersion: version, Info: params.ClientInfo, Capabilities: params.Capabilities},
		offered: r.server.legacyCapabilities(),
	}
	if !s.agreed.CompareAndSwap(nil, agreed) {
		return nil, refuse(jsonrpc.CodeInvalidRequest, "the session is initialized already")
	}
	s.dialect.Negotiated(version, nil)
	return &protocol.InitializeResult{
		ProtocolVersion: version,
		Capabilities:    agreed.offered,
		ServerInfo:      r.server.info,
		Instructions:    r.server.options.Instructions,
	}, nil
}
