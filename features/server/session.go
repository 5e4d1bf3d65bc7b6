package server

import (
	"context"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Session is one peer being served. It is safe for concurrent use.
type Session struct {
	server  *Server
	conn    *conn.Conn
	dialect dialect.Legacy

	mu      sync.Mutex
	version string // of the protocol; empty before initialize
	offered protocol.ServerCapabilities
	client  protocol.InitializeParams
}

// Conn is the connection underneath, for its status and its counts.
func (s *Session) Conn() *conn.Conn { return s.conn }

// Client is what the peer said of itself when it initialized the session.
func (s *Session) Client() protocol.InitializeParams {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// ProtocolVersion is the revision the session speaks; empty before initialize.
func (s *Session) ProtocolVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// agreed is what the handshake has settled for the whole session.
func (s *Session) agreed() (version string, offered protocol.ServerCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.offered
}

// initialize agrees on a revision (2025-11-25 basic/lifecycle). A session has one.
func (s *Session) initialize(_ context.Context, params *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.version != "":
		return nil, refuse(jsonrpc.CodeInvalidRequest, "the session is initialized already")
	case params.ProtocolVersion == "":
		return nil, refuse(jsonrpc.CodeInvalidParams, "initialize: protocolVersion is missing")
	}
	s.version = protocol.Negotiate(params.ProtocolVersion, s.server.options.ProtocolVersions)
	s.offered = s.server.capabilities()
	s.client = *params
	s.dialect.Negotiated(s.version)
	return &protocol.InitializeResult{
		ProtocolVersion: s.version,
		Capabilities:    s.offered,
		ServerInfo:      s.server.info,
		Instructions:    s.server.options.Instructions,
	}, nil
}
