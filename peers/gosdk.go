package peers

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var goSDK = &mcp.Implementation{Name: "go-sdk", Version: "1"}

func newGoSDKServer() *mcp.Server {
	s := mcp.NewServer(goSDK, &mcp.ServerOptions{PageSize: pageSize})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"},
		func(_ context.Context, _ *mcp.CallToolRequest, in message) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"},
		func(_ context.Context, _ *mcp.CallToolRequest, in message) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New(in.Message)
		})
	mcp.AddTool(s, &mcp.Tool{Name: "slow"},
		func(ctx context.Context, r *mcp.CallToolRequest, in duration) (*mcp.CallToolResult, any, error) {
			return nil, nil, slowly(ctx, in, func(step int) error {
				return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: r.Params.GetProgressToken(), Progress: float64(step), Total: float64(in.Steps),
				})
			})
		})
	mcp.AddTool(s, &mcp.Tool{Name: "grow"},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(s, &mcp.Tool{Name: grown},
				func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				})
			return nil, nil, nil
		})
	return s
}

func serveGoSDK(ctx context.Context, _ []string) error {
	return newGoSDKServer().Run(ctx, &mcp.StdioTransport{})
}

// handleGoSDK serves the legacy revisions with sessions, and the modern
// revision without sessions.
func handleGoSDK(revisions []string) (http.Handler, func(context.Context) error) {
	s := newGoSDKServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: protocol.IsModern(revisions[0]), PropagateRequestCancellation: true})
	return handler, func(context.Context) error { return nil }
}

type goSDKSession struct {
	*mcp.ClientSession
	progress *progressListeners
	changes  event
}

func connectGoSDK(ctx context.Context, server Endpoint, revision string) (Session, error) {
	if server.URL != "" {
		return openGoSDK(ctx, &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: newPool()}}, revision)
	}
	return openGoSDK(ctx, &mcp.CommandTransport{Command: exec.Command(server.Command[0], server.Command[1:]...)}, revision)
}

func openGoSDK(ctx context.Context, t mcp.Transport, revision string) (Session, error) {
	progress, changes := new(progressListeners), newEvent()
	c := mcp.NewClient(goSDK, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress.notify(r.Params.ProgressToken)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changes.set() },
	})
	session, err := c.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, err
	}
	return goSDKSession{session, progress, changes}, nil
}

func (s goSDKSession) ToolsChanged(ctx context.Context) error { return s.changes.await(ctx) }

func (s goSDKSession) Revision() string { return s.InitializeResult().ProtocolVersion }

func (s goSDKSession) Ping(ctx context.Context) error { return s.ClientSession.Ping(ctx, nil) }

func (s goSDKSession) Close(context.Context) error { return s.ClientSession.Close() }

func (s goSDKSession) ListTools(ctx context.Context, cursor string) ([]string, string, error) {
	page, err := s.ClientSession.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	return names, page.NextCursor, nil
}

func (s goSDKSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	params := &mcp.CallToolParams{Name: call.Tool, Arguments: call.Arguments}
	if call.OnProgress != nil {
		token := s.progress.add(call.OnProgress)
		params.SetProgressToken(token)
	}
	result, err := s.ClientSession.CallTool(ctx, params)
	if refused := new(jsonrpc.Error); errors.As(err, &refused) {
		return nil, &ProtocolError{refused.Code, refused.Message}
	}
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, content := range result.Content {
		if block, ok := content.(*mcp.TextContent); ok {
			text.WriteString(block.Text)
		}
	}
	return &Result{text.String(), result.IsError}, nil
}
