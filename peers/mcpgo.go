package peers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func newMCPGoServer() *server.MCPServer {
	s := server.NewMCPServer("mcp-go", "1", server.WithToolCapabilities(true), server.WithPaginationLimit(pageSize))
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
	s.AddTool(mcp.NewTool("grow"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(mcp.NewTool(grown), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(""), nil
		})
		return mcp.NewToolResultText(""), nil
	})
	return s
}

func serveMCPGo(context.Context, []string) error { return server.ServeStdio(newMCPGoServer()) }

func handleMCPGo([]string) (http.Handler, func(context.Context) error) {
	handler := server.NewStreamableHTTPServer(newMCPGoServer())
	return handler, handler.Shutdown
}

type mcpGoSession struct {
	*client.Client
	revision string
	progress *progressListeners
	changes  event
}

func connectMCPGo(ctx context.Context, server Endpoint, revision string) (Session, error) {
	if server.URL == "" {
		return openMCPGo(ctx, transport.NewStdioWithOptions(server.Command[0], nil, server.Command[1:]), revision)
	}
	options := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(&http.Client{Transport: newPool()}),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
	}
	if protocol.IsLegacy(revision) {
		//lint:ignore SA1019 the legacy revisions have the GET stream, and no other
		options = append(options, transport.WithContinuousListening()) // the legacy revisions have this stream, and are compared as well
	}
	t, err := transport.NewStreamableHTTP(server.URL, options...)
	if err != nil {
		return nil, err
	}
	return openMCPGo(ctx, t, revision)
}

func openMCPGo(ctx context.Context, t transport.Interface, revision string) (Session, error) {
	s, listens := mcpGoSession{client.NewClient(t), "", new(progressListeners), newEvent()}, newEvent()
	s.OnNotification(func(n mcp.JSONRPCNotification) {
		switch n.Method {
		case string(mcp.MethodNotificationProgress):
			s.progress.notify(n.Params.AdditionalFields["progressToken"])
		case mcp.MethodNotificationToolsListChanged:
			s.changes.set()
		case mcp.MethodNotificationSubscriptionsAcknowledged:
			listens.set()
		}
	})
	if err := s.Start(context.WithoutCancel(ctx)); err != nil { // its process ends with this context
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
	if protocol.IsModern(s.revision) {
		_, err := s.ListenAsync(context.WithoutCancel(ctx), mcp.SubscriptionFilter{ToolsListChanged: true}, nil)
		if err := errors.Join(err, listens.await(ctx)); err != nil {
			return nil, errors.Join(err, s.Client.Close())
		}
	}
	return s, nil
}

func (s mcpGoSession) ToolsChanged(ctx context.Context) error { return s.changes.await(ctx) }

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
		token := s.progress.add(call.OnProgress)
		request.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := s.Client.CallTool(ctx, request)
	if errors.Is(err, mcp.ErrInvalidParams) { // mcp-go replaces codes with its own errors
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
