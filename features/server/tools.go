package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// A ToolHandler runs a tool on arguments that fit its input schema. An error is
// the tool's own failure: the peer gets its text as a result with IsError set. A
// *jsonrpc.Error in its chain is a failure of the protocol instead, and sent as
// it is.
type ToolHandler func(ctx context.Context, call *ToolCall) (*protocol.CallToolResult, error)

// A ToolCall is one call of a tool. It is valid until its handler returns.
type ToolCall struct {
	Params *protocol.CallToolParams
	Client *Client

	request  *request
	progress jsonrpc.ID // the token, if the caller has asked
}

type registeredTool struct {
	tool    *protocol.Tool
	input   *schema.Validator
	output  *schema.Validator // nil: nothing is promised
	handler ToolHandler
}

// AddRawTool offers a tool whose handler reads the raw arguments. The tool's
// InputSchema is required. A tool with an OutputSchema must answer with
// structured content that fits it, or with IsError set: anything else is
// answered as an internal error.
//
// A tool of the same name is replaced. AddRawTool panics when handler is nil or
// the name or a schema is not valid: they are the program's own.
func (s *Server) AddRawTool(tool protocol.Tool, handler ToolHandler) {
	if tool.Name == "" {
		panic("server: a tool needs a name")
	}
	if handler == nil {
		panic(fmt.Sprintf("server: tool %q: no handler", tool.Name))
	}
	registered := &registeredTool{tool: &tool, handler: handler, input: mustCompile(tool.Name, tool.InputSchema)}
	if len(tool.OutputSchema) > 0 {
		registered.output = mustCompile(tool.Name, tool.OutputSchema)
	}
	s.tools.set(tool.Name, registered)
	s.audience.toolsChanged()
}

func (r *request) listTools(_ context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	registered, next, err := r.server.tools.page(params.Cursor, r.server.options.PageSize)
	if err != nil {
		return nil, err
	}
	result := &protocol.ListToolsResult{Tools: make([]*protocol.Tool, len(registered)), NextCursor: next}
	for i := range registered {
		result.Tools[i] = registered[i].tool
	}
	return result, nil
}

func (r *request) callTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	registered, ok := r.server.tools.get(params.Name)
	if !ok {
		return nil, refuse(jsonrpc.CodeInvalidParams, "unknown tool %q", shorten(params.Name, longestName))
	}
	token, err := progressToken(params.Meta)
	if err != nil {
		return nil, err
	}
	if len(params.Arguments) == 0 {
		params.Arguments = json.RawMessage("{}")
	}
	if err := registered.input.Validate(ctx, params.Arguments); err != nil {
		return r.client.invalidArguments(misfit(err))
	}
	r.call = ToolCall{Params: params, Client: r.client, request: r, progress: token}
	result, err := registered.handler(ctx, &r.call)
	if err != nil {
		return failure(err)
	}
	return registered.checked(ctx, result)
}

// checked refuses a result that the tool has not promised.
func (r *registeredTool) checked(ctx context.Context, result *protocol.CallToolResult) (*protocol.CallToolResult, error) {
	switch {
	case result == nil:
		return nil, refuse(jsonrpc.CodeInternalError, "tool %q has returned no result", r.tool.Name)
	case r.output == nil || result.IsError:
		return result, nil
	case len(result.StructuredContent) == 0:
		return nil, refuse(jsonrpc.CodeInternalError, "tool %q has broken its output schema: no structured content", r.tool.Name)
	}
	if err := r.output.Validate(ctx, result.StructuredContent); err != nil {
		return nil, refuse(jsonrpc.CodeInternalError, "tool %q has broken its output schema: %s", r.tool.Name, misfit(err))
	}
	return result, nil
}

// invalidArguments tells the peer of arguments that do not fit: as a failure of
// the tool, which a model can read and mend, since 2025-11-25.
func (c *Client) invalidArguments(why string) (*protocol.CallToolResult, error) {
	fault := refuse(jsonrpc.CodeInvalidParams, "invalid arguments: %s", why)
	if c.ProtocolVersion < protocol.Version20251125 {
		return nil, fault
	}
	return failed(fault.Message), nil
}

// failure is the result of a tool that failed, unless the protocol did.
func failure(err error) (*protocol.CallToolResult, error) {
	var fault *jsonrpc.Error
	if errors.As(err, &fault) {
		return nil, err
	}
	return failed(err.Error()), nil
}

func failed(why string) *protocol.CallToolResult {
	return &protocol.CallToolResult{Content: text(why), IsError: true}
}

// progressToken is the token under which the caller wants to be told of
// progress: none if there is none, or null.
func progressToken(meta protocol.Meta) (token jsonrpc.ID, err error) {
	raw, asked := meta[protocol.MetaProgressToken]
	if !asked {
		return token, nil
	}
	if err := token.UnmarshalJSON(raw); err != nil {
		return token, refuse(jsonrpc.CodeInvalidParams, "the progress token is neither a string nor an integer")
	}
	return token, nil
}

// Progress tells the caller how far the call has come, if it has asked. The
// values must rise. It fails when the peer is gone or ctx has ended.
func (c *ToolCall) Progress(ctx context.Context, progress, total float64, message string) error {
	if c.progress.IsZero() {
		return nil
	}
	return c.request.notify(ctx, protocol.NotificationProgress,
		protocol.ProgressParams{ProgressToken: c.progress, Progress: progress, Total: total, Message: message})
}
