package client

import (
	"context"
	"iter"

	"github.com/bowline-mcp/bowline/protocol"
)

// ListTools fetches one page of the server's tools.
func (s *Session) ListTools(ctx context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	if err := s.offersTools(protocol.MethodListTools); err != nil {
		return nil, err
	}
	return call[protocol.ListToolsResult](ctx, s, protocol.MethodListTools, orNew(params))
}

// Tools ranges over the tools of all pages, fetching each as it is reached,
// beginning with the page of params. It ends after the first error.
func (s *Session) Tools(ctx context.Context, params *protocol.ListToolsParams) iter.Seq2[*protocol.Tool, error] {
	return func(yield func(*protocol.Tool, error) bool) {
		next := orNew(params)
		for {
			page, err := s.ListTools(ctx, next)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, tool := range page.Tools {
				if !yield(tool, nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			next.Cursor = page.NextCursor
		}
	}
}

// CallTool calls a tool. A failure of the tool is a result with IsError set,
// not an error.
func (s *Session) CallTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	if err := s.offersTools(protocol.MethodCallTool); err != nil {
		return nil, err
	}
	return call[protocol.CallToolResult](ctx, s, protocol.MethodCallTool, orNew(params))
}

func (s *Session) offersTools(method string) error {
	if s.server.Load().Capabilities.Tools == nil {
		return &CapabilityError{Method: method, Capability: "tools"}
	}
	return nil
}
