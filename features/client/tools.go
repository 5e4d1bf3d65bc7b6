package client

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/protocol"
)

// ListTools fetches one page of the server's tools, of protocol.MaxPageTools
// at most. A cursor is good for the server session that gave it; Tools sees to
// that.
func (s *Session) ListTools(ctx context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	page, _, err := s.listTools(ctx, params)
	return page, err
}

func (s *Session) listTools(ctx context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, asked, error) {
	page, of, err := call(ctx, s.safe(), protocol.MethodListTools, params, tools, func(page *protocol.ListToolsResult) error {
		if page.Tools == nil {
			return errors.New("it has no tools")
		}
		return nil
	})
	if err == nil {
		s.listed.learn(page.Tools, s.client.options.TrustAnnotations)
	}
	return page, of, err
}

// CallTool calls a tool. A failure of the tool is a result with IsError set,
// not an error. A block of content that cannot be read is a
// *protocol.UnknownContent.
//
// A tool is stateless or stateful, see Options.ToolModes. A call of a stateful
// one is for the server session that is ready when it is made, or that of
// CallOptions.Epoch, and fails, not sent, rather than run in another: it
// neither waits for a server nor follows to the next one.
func (s *Session) CallTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	var tool string
	if params != nil {
		tool = params.Name
	}
	result, _, err := call(ctx, s.forTool(tool), protocol.MethodCallTool, params, tools, func(result *protocol.CallToolResult) error {
		if result.Content == nil && len(result.StructuredContent) == 0 { // some servers send the latter alone
			return errors.New("it has no content")
		}
		return nil
	})
	return result, err
}

// tools are what the methods of tools need the server to offer.
func tools(offered *protocol.ServerCapabilities) error {
	if offered.Tools == nil {
		return &CapabilityError{Capability: "tools"}
	}
	return nil
}
