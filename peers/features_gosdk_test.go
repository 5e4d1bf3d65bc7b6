//go:build npm

package peers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answered returns the answer to an input request, or nil if the server must send the request.
// For legacy clients, go-sdk sends it itself.
func answered(r *mcp.CallToolRequest) mcp.InputResponse { return r.Params.InputResponses["q"] }

func asks(q mcp.InputRequest) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": q}}
}

func says(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func featuredGoSDK(_ testing.TB, revision string) (http.Handler, func()) {
	s := mcp.NewServer(goSDK, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			var values []string
			for _, style := range []string{"short", "thorough"} {
				if strings.HasPrefix(style, r.Params.Argument.Value) {
					values = append(values, style)
				}
			}
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values}}, nil
		},
	})
	s.AddResource(&mcp.Resource{URI: "config://app", Name: "config"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "on"}}}, nil
	})
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "users://{id}", Name: "user"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "user " + strings.TrimPrefix(r.Params.URI, "users://")}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "review", Arguments: []*mcp.PromptArgument{{Name: "style"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "a " + r.Params.Arguments["style"] + " review"}}}}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "weigh"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, weight, error) {
		return nil, weight{7}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return says("done"), nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "config://app"})
	})
	mcp.AddTool(s, &mcp.Tool{Name: "elicit"}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, ok := answered(r).(*mcp.ElicitResult)
		if !ok {
			return asks(&mcp.ElicitParams{Message: "Which size?", RequestedSchema: map[string]any{
				"type": "object", "properties": map[string]any{"size": map[string]any{"type": "string"}},
			}}), nil, nil
		}
		return says(fmt.Sprint(answer.Content["size"])), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		switch answer := answered(r).(type) {
		case *mcp.CreateMessageResult:
			return says(answer.Content.(*mcp.TextContent).Text), nil, nil
		case *mcp.CreateMessageWithToolsResult:
			return says(answer.Content[0].(*mcp.TextContent).Text), nil, nil
		case nil:
			return asks(&mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}), nil, nil
		default:
			return nil, nil, fmt.Errorf("%w: %T", errNoAnswer, answer)
		}
	})
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, ok := answered(r).(*mcp.ListRootsResult)
		if !ok {
			return asks(&mcp.ListRootsParams{}), nil, nil
		}
		return says(answer.Roots[0].URI), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "log"}, func(ctx context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return says("done"), nil, r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Data: "careful"})
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: protocol.IsModern(revision), PropagateRequestCancellation: true})
	return handler, func() {}
}

type featuredGoSDKClient struct {
	session  *mcp.ClientSession
	messages chan string
	updates  chan string
}

func connectFeaturedGoSDK(ctx context.Context, at Endpoint, revision string) (featured, error) {
	messages, updates := make(chan string, 10), make(chan string, 10)
	c := mcp.NewClient(goSDK, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"size": "small"}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "hello"}}, nil
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			updates <- r.Params.URI
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			messages <- fmt.Sprint(r.Params.Data)
		},
	})
	c.AddRoots(&mcp.Root{URI: "file:///home"})
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: at.URL, HTTPClient: &http.Client{Transport: newPool()}}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, err
	}
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		return nil, fmt.Errorf("the session uses %s", got)
	}
	return &featuredGoSDKClient{session, messages, updates}, nil
}

func (c *featuredGoSDKClient) read(ctx context.Context, uri string) (string, error) {
	result, err := c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(result.Contents) == 0 {
		return "", err
	}
	return result.Contents[0].Text, nil
}

func (c *featuredGoSDKClient) prompt(ctx context.Context, name string, arguments map[string]string) (string, error) {
	result, err := c.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: arguments})
	if err != nil || len(result.Messages) != 1 {
		return "", err
	}
	return result.Messages[0].Content.(*mcp.TextContent).Text, nil
}

func (c *featuredGoSDKClient) complete(ctx context.Context, prompt, argument, typed string) ([]string, error) {
	result, err := c.session.Complete(ctx, &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: prompt}, Argument: mcp.CompleteParamsArgument{Name: argument, Value: typed},
	})
	if err != nil {
		return nil, err
	}
	return result.Completion.Values, nil
}

func (c *featuredGoSDKClient) call(ctx context.Context, tool string) (string, error) {
	return c.callWith(ctx, &mcp.CallToolParams{Name: tool})
}

func (c *featuredGoSDKClient) callWith(ctx context.Context, params *mcp.CallToolParams) (string, error) {
	result, err := c.session.CallTool(ctx, params)
	if err != nil || len(result.Content) == 0 {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

func (c *featuredGoSDKClient) structured(ctx context.Context, tool string) (string, error) {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	content, _ := result.StructuredContent.(map[string]any)
	return fmt.Sprint(content["grams"]), nil
}

func (c *featuredGoSDKClient) updated(ctx context.Context, uri, tool string) (string, error) {
	if err := c.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return "", err
	}
	if _, err := c.call(ctx, tool); err != nil {
		return "", err
	}
	return awaitMessage(ctx, c.updates)
}

func (c *featuredGoSDKClient) logged(ctx context.Context, tool string) (string, error) {
	params := &mcp.CallToolParams{Name: tool}
	if protocol.IsModern(c.session.InitializeResult().ProtocolVersion) {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
	} else if err := c.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		return "", err
	}
	if _, err := c.callWith(ctx, params); err != nil {
		return "", err
	}
	return awaitMessage(ctx, c.messages)
}

func (c *featuredGoSDKClient) close() error { return c.session.Close() }
