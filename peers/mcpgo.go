package peers

import (
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func newMCPGoServer() *server.MCPServer {
	s := server.NewMCPServer("mcp-go", "1", server.WithToolCapabilities(false), server.WithPaginationLimit(pageSize))
	s.AddTool(mcp.NewTool("echo", mcp.WithString("message", mcp.Required())), mcp.NewTypedToolHandler(
		func(_ context.Context, _ mcp.CallToolRequest, in message) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(in.Message), nil
		}))
	s.AddTool(mcp.NewTool("fail", mcp.WithString("message", mcp.Required())), mcp.NewTypedToolHandler(
		func(_ context.Context, _ mcp.CallToolRequest, in message) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError(in.Message), nil
		}))
	s.AddTool(mcp.NewTool("slow", mcp.WithNumber("seconds", mcp.Required()), mcp.WithNumber("steps")), mcp.NewTypedToolHandler(
		func(ctx context.Context, r mcp.CallToolRequest, in duration) (*mcp.CallToolResult, error) {
			err := slowly(ctx, in, func(step int) error {
				return s.SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress), map[string]any{
					"progressToken": r.Params.Meta.ProgressToken, "progress": step, "total": in.Steps,
				})
			})
			return mcp.NewToolResultText("done"), err
		}))
	return s
}

func serveMCPGo(context.Context, []string) error { return server.ServeStdio(newMCPGoServer()) }

type mcpGoSession struct {
	*client.Client
	revision string
	progress *listeners
}

func connectMCPGo(ctx context.Context, server []string, revision string) (Session, error) {
	return openMCPGo(ctx, transport.NewStdioWithOptions(server[0], nil, server[1:]), revision)
}

func openMCPGo(ctx context.Context, t transport.Interface, revision string) (Session, error) {
	s := mcpGoSession{client.NewClient(t), "", new(listeners)}
	s.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == string(mcp.MethodNotificationProgress) {
			s.progress.tell(n.Params.AdditionalFields["progressToken"])
		}
	})
	if err := s.Start(context.WithoutCancel(ctx)); err != nil { // its context is the process's
		return nil, err
	}
	var request mcp.InitializeRequest
	request.Params.ProtocolVersion = revision
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	result, err := s.Initialize(ctx, request)
	if err != nil {
		return nil, errors.Join(err, s.Client.Close())
	}
	s.revision = result.ProtocolVersion
	return s, nil
}

func (s mcpGoSession) Revision() string { return s.revision }

func (s mcpGoSession) Close(context.Context) error { return s.Client.Close() }

func (s mcpGoSession) ListTools(ctx context.Context, cursor string) ([]string, string, error) {
	var request mcp.ListToolsRequest
	request.Params.Cursor = mcp.Cursor(cursor)
	page, err := s.ListToolsByPage(ctx, request)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	return names, string(page.NextCursor), nil
}

func (s mcpGoSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = call.Tool, call.Arguments
	if call.OnProgress != nil {
		token, remove := s.progress.add(call.OnProgress)
		defer remove()
		request.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := s.Client.CallTool(ctx, request)
	if errors.Is(err, mcp.ErrInvalidParams) { // it turns codes into errors of its own
		return nil, &ProtocolError{mcp.INVALID_PARAMS, err.Error()}
	}
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, content := range result.Content {
		if block, ok := content.(mcp.TextContent); ok {
			text.WriteString(block.Text)
		}
	}
	return &Result{text.String(), result.IsError}, nil
}
