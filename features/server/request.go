package server

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A request is one that a client has made, with all that its era says of it.
type request struct {
	*conn.Incoming
	server  *Server
	client  *Client
	offered protocol.ServerCapabilities // to this client
	modern  bool
	call    ToolCall // of a request that is one
}

// A method serves a request: params in, result out.
type method func(context.Context, *request) (json.RawMessage, error)

// serve decodes the params, runs the method and encodes its result.
func serve[P, R any](run func(*request, context.Context, *P) (*R, error)) method {
	return func(ctx context.Context, r *request) (json.RawMessage, error) {
		params := new(P)
		if err := protocol.Unmarshal(r.Params, params); err != nil {
			return nil, refuse(jsonrpc.CodeInvalidParams, "%s: %s", r.Method, misfit(err))
		}
		result, err := run(r, ctx, params)
		if err != nil {
			return nil, err
		}
		raw, err := protocol.Marshal(stamped(r, result))
		if err != nil {
			return nil, refuse(jsonrpc.CodeInternalError, "%s: the result cannot be encoded: %s", r.Method, misfit(err))
		}
		return raw, nil
	}
}

// stamped is the result as the era of its request wants it. Results may be
// shared: a modern one is a copy.
func stamped[R any](r *request, result *R) *R {
	if !r.modern {
		return result
	}
	copied := *result
	if modern, ok := any(&copied).(protocol.ModernResult); ok {
		modern.Stamp(r.server.rawInfo)
	}
	return &copied
}

// shared are the methods of both eras that the server offers to this client.
func (r *request) shared() method {
	switch {
	case r.Method == protocol.MethodListTools && r.offered.Tools != nil:
		return serve((*request).listTools)
	case r.Method == protocol.MethodCallTool && r.offered.Tools != nil:
		return serve((*request).callTool)
	default:
		return nil
	}
}

// run serves the request by a method, if there is one.
func (r *request) run(ctx context.Context, m method) (json.RawMessage, error) {
	if m == nil {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "method not found: %s", shorten(r.Method, longestName))
	}
	return m(ctx, r)
}

// A handler serves a session's requests.
type handler struct{ session *session }

// ServeRequest implements conn.Handler. It is the one place where the era of a
// request is decided: by the request itself (2026-07-28 basic/versioning). That
// holds for a server that speaks no modern revision too: strangers may share
// the link that modern requests come in on, and must not share a session.
func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	r := &request{Incoming: in, server: h.session.server}
	said, modern, err := protocol.ModernContext(in.Params)
	switch {
	case err != nil:
		return nil, err
	case !modern:
		return h.session.serveLegacy(ctx, r)
	default:
		return r.serveModern(ctx, said)
	}
}

// ServeNotification implements conn.Handler. No request waits for
// "initialized": a client that calls before it is served all the same.
func (h handler) ServeNotification(_ context.Context, in *conn.Incoming) {
	if in.Method == protocol.NotificationInitialized {
		h.session.initialized()
	}
}

func (s *Server) speaksLegacy() bool {
	return slices.ContainsFunc(s.options.ProtocolVersions, protocol.IsLegacy)
}
