package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func goSDK() implementation {
	return implementation{
		agent:  agents + "gosdk",
		memory: goSDKInMemory,
		stdio: func(ctx context.Context, revision string, command []string) (*session, error) {
			return openGoSDK(ctx, &mcp.CommandTransport{Command: exec.Command(command[0], command[1:]...)}, revision, nil)
		},
		serveStdio: func(ctx context.Context) error { return newGoSDKServer(serving{}).Run(ctx, &mcp.StdioTransport{}) },
		http: func(ctx context.Context, revision, url string) (*session, error) {
			return openGoSDK(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: newPool()}}, revision, nil)
		},
		handler: newGoSDKHandler,
	}
}

func goSDKInfo() *mcp.Implementation { return &mcp.Implementation{Name: "go-sdk", Version: "1"} }

func newGoSDKServer(o serving) *mcp.Server {
	options := new(mcp.ServerOptions)
	if o.notified != nil {
		options.ProgressNotificationHandler = func(context.Context, *mcp.ProgressNotificationServerRequest) { o.notified() }
	}
	s := mcp.NewServer(goSDKInfo(), options)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"},
		func(_ context.Context, _ *mcp.CallToolRequest, in arguments) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "order"},
		func(_ context.Context, _ *mcp.CallToolRequest, in order) (*mcp.CallToolResult, order, error) {
			return nil, in, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "document"},
		func(_ context.Context, _ *mcp.CallToolRequest, in many) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: foundText(in.Count)}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "park"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
			<-ctx.Done()
			return nil, nil, context.Cause(ctx)
		})
	mcp.AddTool(s, &mcp.Tool{Name: "flood"},
		func(ctx context.Context, r *mcp.CallToolRequest, in many) (*mcp.CallToolResult, any, error) {
			for range in.Count {
				if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "news"}); err != nil {
					return nil, nil, err
				}
			}
			return &mcp.CallToolResult{}, nil, nil
		})
	for i := range o.tools {
		s.AddTool(&mcp.Tool{Name: toolName(i), Description: toolDescription, InputSchema: json.RawMessage(toolSchema)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
	}
	return s
}

// newGoSDKHandler has sessions in the legacy revisions. The modern one it serves
// only without them.
func newGoSDKHandler(revision string) http.Handler {
	s := newGoSDKServer(serving{})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: protocol.IsModern(revision), PropagateRequestCancellation: true})
}

func goSDKInMemory(revision string, o serving) dial {
	s := newGoSDKServer(o)
	return func(ctx context.Context) (*session, error) {
		clientSide, theirs := mcp.NewInMemoryTransports()
		if _, err := s.Connect(ctx, theirs, nil); err != nil {
			return nil, err
		}
		return openGoSDK(ctx, clientSide, revision, o.received)
	}
}

func openGoSDK(ctx context.Context, over mcp.Transport, revision string, received func()) (*session, error) {
	options := new(mcp.ClientOptions)
	if received != nil {
		options.LoggingMessageHandler = func(context.Context, *mcp.LoggingMessageRequest) { received() }
	}
	c := mcp.NewClient(goSDKInfo(), options)
	s, err := c.Connect(ctx, over, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, err
	}
	if got := s.InitializeResult().ProtocolVersion; got != revision {
		return nil, fmt.Errorf("it speaks %s", got)
	}
	if received != nil {
		if err := s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			return nil, err
		}
	}
	return goSDKCalls(s), nil
}

// goSDKCalls are what rows do with a session.
func goSDKCalls(s *mcp.ClientSession) *session {
	callTool := func(ctx context.Context, tool string, arguments any) (string, error) {
		result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return "", err
		}
		var text strings.Builder
		for _, content := range result.Content {
			if block, ok := content.(*mcp.TextContent); ok {
				text.WriteString(block.Text)
			}
		}
		return text.String(), nil
	}
	return &session{
		echo: func(text string) call {
			return func(ctx context.Context) error {
				got, err := callTool(ctx, "echo", arguments{text})
				if err != nil {
					return err
				}
				return sameText(got, text)
			}
		},
		order: orderInText(callTool),
		list: func(ctx context.Context) (tools int, err error) {
			for _, err := range s.Tools(ctx, nil) {
				if err != nil {
					return 0, err
				}
				tools++
			}
			return tools, nil
		},
		notify: func(ctx context.Context) error {
			return s.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "news"})
		},
		park: func(ctx context.Context) error {
			_, err := callTool(ctx, "park", nothing{})
			return err
		},
		fetch: func(ctx context.Context, bytes int) error {
			got, err := callTool(ctx, "document", many{bytes})
			if err != nil {
				return err
			}
			return sameText(got, foundText(bytes))
		},
		flood: func(ctx context.Context, count int) error {
			_, err := callTool(ctx, "flood", many{count})
			return err
		},
		close: s.Close,
	}
}
