package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// A ToolHandler runs a tool on arguments that fit its input schema. An error is
// the tool's own failure: the peer gets it as a result with IsError set. A
// *jsonrpc.Error in its chain is a failure of the protocol instead.
type ToolHandler func(ctx context.Context, call *ToolCall) (*protocol.CallToolResult, error)

// A ToolCall is one call of a tool. It is valid until its handler returns.
type ToolCall struct {
	Params  *protocol.CallToolParams
	Session *Session
}

type registeredTool struct {
	tool    *protocol.Tool
	input   *schema.Validator
	output  *schema.Validator // nil: not validated
	handler ToolHandler
}

// AddRawTool offers a tool whose handler reads the raw arguments. The tool's
// InputSchema is required; structured content is validated against its
// OutputSchema if it has one. A tool of the same name is replaced. It panics
// when the name or a schema is not valid: they are the program's own.
func (s *Server) AddRawTool(tool protocol.Tool, handler ToolHandler) {
	registered := &registeredTool{tool: &tool, handler: handler}
	if len(tool.OutputSchema) > 0 {
		registered.output = mustCompile(tool.Name, tool.OutputSchema)
	}
	s.register(registered)
}

func (s *Server) register(r *registeredTool) {
	if r.tool.Name == "" {
		panic("server: a tool needs a name")
	}
	r.input = mustCompile(r.tool.Name, r.tool.InputSchema)
	s.tools.set(r.tool.Name, r)
}

func (s *Session) listTools(_ context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	registered, next, err := s.server.tools.page(params.Cursor, s.server.options.PageSize)
	if err != nil {
		return nil, err
	}
	result := &protocol.ListToolsResult{Tools: make([]*protocol.Tool, len(registered)), NextCursor: next}
	for i := range registered {
		result.Tools[i] = registered[i].tool
	}
	return result, nil
}

func (s *Session) callTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	registered, ok := s.server.tools.get(params.Name)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", params.Name)}
	}
	if len(params.Arguments) == 0 {
		params.Arguments = json.RawMessage("{}")
	}
	if err := registered.input.Validate(params.Arguments); err != nil {
		return s.invalidArguments(fmt.Errorf("invalid arguments: %w", err))
	}
	result, err := registered.handler(ctx, &ToolCall{Params: params, Session: s})
	if err != nil {
		return failure(err)
	}
	return registered.checked(result)
}

// checked refuses a result that the tool has not promised.
func (r *registeredTool) checked(result *protocol.CallToolResult) (*protocol.CallToolResult, error) {
	if result == nil {
		return nil, fmt.Errorf("tool %q has returned no result", r.tool.Name)
	}
	if r.output == nil || result.IsError {
		return result, nil
	}
	if err := r.output.Validate(result.StructuredContent); err != nil {
		return nil, fmt.Errorf("tool %q has broken its output schema: %w", r.tool.Name, err)
	}
	return result, nil
}

// invalidArguments tells the peer of arguments that fail the schema: as a
// failure of the tool, which a model can read and mend, since 2025-11-25.
func (s *Session) invalidArguments(err error) (*protocol.CallToolResult, error) {
	if s.ProtocolVersion() >= protocol.Version20251125 {
		return failure(err)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
}

// failure is the result of a tool that failed.
func failure(err error) (*protocol.CallToolResult, error) {
	if isFault(err) {
		return nil, err
	}
	return &protocol.CallToolResult{
		Content: protocol.Contents{&protocol.TextContent{Text: err.Error()}},
		IsError: true,
	}, nil
}

// Progress tells the caller how far the call has come, if it has asked. The
// values must rise. It fails when the peer is gone or ctx has ended.
func (c *ToolCall) Progress(ctx context.Context, progress, total float64, message string) error {
	raw, asked := c.Params.Meta[protocol.MetaProgressToken]
	if !asked {
		return nil
	}
	token, err := jsonrpc.ParseID(raw)
	if err != nil {
		return fmt.Errorf("server: progress token: %w", err)
	}
	params, err := protocol.Marshal(protocol.ProgressParams{ProgressToken: token, Progress: progress, Total: total, Message: message})
	if err != nil {
		return err
	}
	return c.Session.conn.Notify(ctx, protocol.NotificationProgress, params)
}
