package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Session is one peer being served.
type Session struct {
	server  *Server
	conn    *conn.Conn
	dialect dialect.Legacy

	mu      sync.Mutex
	version string // of the protocol; empty before initialize
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

// ServeRequest implements conn.Handler.
func (s *Session) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == protocol.MethodInitialize {
		return serve(ctx, in, s.initialize)
	}
	if s.ProtocolVersion() == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: in.Method + " before initialize"}
	}
	switch in.Method {
	case protocol.MethodListTools:
		return serve(ctx, in, s.listTools)
	case protocol.MethodCallTool:
		return serve(ctx, in, s.callTool)
	default:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
	}
}

// ServeNotification implements conn.Handler. Nothing waits for "initialized":
// a client that calls before it is served all the same.
func (s *Session) ServeNotification(context.Context, *conn.Incoming) {}

// serve decodes the params, runs the method and encodes its result.
func serve[P, R any](ctx context.Context, in *conn.Incoming, method func(context.Context, *P) (*R, error)) (json.RawMessage, error) {
	params := new(P)
	if err := protocol.Unmarshal(in.Params, params); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("%s: %v", in.Method, err)}
	}
	result, err := method(ctx, params)
	if err != nil {
		return nil, err
	}
	return protocol.Marshal(result)
}

// initialize agrees on a revision (2025-11-25 basic/lifecycle). A session has one.
func (s *Session) initialize(_ context.Context, params *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the session is initialized already"}
	}
	s.version = protocol.Negotiate(params.ProtocolVersion, s.server.options.ProtocolVersions)
	s.client = *params
	s.dialect.Negotiated(s.version)
	return &protocol.InitializeResult{
		ProtocolVersion: s.version,
		Capabilities:    s.server.capabilities(),
		ServerInfo:      s.server.info,
		Instructions:    s.server.options.Instructions,
	}, nil
}
