package client

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// ListTools fetches one page of the server's tools, of protocol.MaxPageTools
// at most. A cursor is good for the server session that gave it; Tools sees to
// that.
func (s *Session) ListTools(ctx context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	if err := s.offersTools(ctx, protocol.MethodListTools); err != nil {
		return nil, err
	}
	return s.listTools(ctx, s.conn, orNew(params))
}

func (s *Session) listTools(ctx context.Context, via caller, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	return call(ctx, s, via, protocol.MethodListTools, params, func(page *protocol.ListToolsResult) error {
		if page.Tools == nil {
			return errors.New("it has no tools")
		}
		return nil
	})
}

// CallTool calls a tool. A failure of the tool is a result with IsError set,
// not an error. A block of content that cannot be read is a
// *protocol.UnknownContent.
func (s *Session) CallTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	if err := s.offersTools(ctx, protocol.MethodCallTool); err != nil {
		return nil, err
	}
	return call(ctx, s, s.conn, protocol.MethodCallTool, orNew(params), func(result *protocol.CallToolResult) error {
		if result.Content == nil && len(result.StructuredContent) == 0 { // some servers send the latter alone
			return errors.New("it has no content")
		}
		return nil
	})
}

// await waits for a server if the call is to: what can be asked of it, and how,
// is known only then.
func (s *Session) await(ctx context.Context, method string) error {
	if !s.options.WaitForReady {
		return nil
	}
	if err := s.conn.AwaitReady(ctx); err != nil {
		return s.notSent(method, waitEnded(ctx), err)
	}
	return nil
}

// offersTools refuses what the present server does not offer. Where there is
// none, and the call does not wait for one, that is the call's to say.
func (s *Session) offersTools(ctx context.Context, method string) error {
	if err := s.await(ctx, method); err != nil {
		return err
	}
	if s.conn.State() == conn.Ready && s.latest.Load().server.Capabilities.Tools == nil {
		return s.notSent(method, conn.Refused, &CapabilityError{Capability: "tools"})
	}
	return nil
}

// waitEnded is why a wait for ready has ended: the context, or else the session.
func waitEnded(ctx context.Context) conn.Cause {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return conn.TimedOut
	case ctx.Err() != nil:
		return conn.Cancelled
	default:
		return conn.ShutDown
	}
}

func (s *Session) notSent(method string, cause conn.Cause, err error) error {
	return &conn.CallError{Method: method, ID: s.conn.NextID(), Cause: cause, Delivery: conn.NotSent, Err: err}
}
