//go:build npm

package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// stylesOf completes for a server made with mcp-go.
type stylesOf struct{}

func (stylesOf) CompletePromptArgument(_ context.Context, _ string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	values := []string{}
	for _, style := range []string{"short", "thorough"} {
		if strings.HasPrefix(style, argument.Value) {
			values = append(values, style)
		}
	}
	return &mcp.Completion{Values: values}, nil
}

func featuredMCPGo(testing.TB, string) (http.Handler, func()) {
	s := server.NewMCPServer("mcp-go", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true), server.WithLogging(), server.WithCompletions(), server.WithElicitation(), server.WithRoots(),
		server.WithPromptCompletionProvider(stylesOf{}))
	s.EnableSampling()
	s.AddResource(mcp.NewResource("config://app", "config"), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, Text: "on"}}, nil
	})
	s.AddResourceTemplate(mcp.NewResourceTemplate("users://{id}", "user"), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, Text: "user " + strings.TrimPrefix(r.Params.URI, "users://")}}, nil
	})
	s.AddPrompt(mcp.NewPrompt("review", mcp.WithArgument("style")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("a "+r.Params.Arguments["style"]+" review"))}), nil
	})
	s.AddTool(mcp.NewTool("weigh", mcp.WithOutputSchema[weight]()), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultStructured(weight{7}, "7 grams"), nil
	})
	s.AddTool(mcp.NewTool("touch"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.SendNotificationToAllClients("notifications/resources/updated", map[string]any{"uri": "config://app"})
		return mcp.NewToolResultText("done"), nil
	})
	s.AddTool(mcp.NewTool("elicit"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer := server.ElicitationResponse(r.Params.InputResponses, "q")
		if answer == nil {
			return server.NewInputRequestBuilder("").Elicit("q", mcp.ElicitationParams{Message: "Which size?", RequestedSchema: map[string]any{
				"type": "object", "properties": map[string]any{"size": map[string]any{"type": "string"}},
			}}).ToolResult(), nil
		}
		form, _ := answer.Content.(map[string]any)
		return mcp.NewToolResultText(fmt.Sprint(form["size"])), nil
	})
	s.AddTool(mcp.NewTool("sample"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer := server.SamplingResponse(r.Params.InputResponses, "q")
		if answer == nil {
			return server.NewInputRequestBuilder("").Sample("q", mcp.CreateMessageParams{
				MaxTokens: 10, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent("hi")}},
			}).ToolResult(), nil
		}
		return mcp.NewToolResultText(textOfMCPGo(answer.Content)), nil
	})
	s.AddTool(mcp.NewTool("roots"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer := server.RootsResponse(r.Params.InputResponses, "q")
		if answer == nil {
			return server.NewInputRequestBuilder("").Roots("q").ToolResult(), nil
		}
		return mcp.NewToolResultText(answer.Roots[0].URI), nil
	})
	s.AddTool(mcp.NewTool("log"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := s.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(mcp.LoggingLevelWarning, "", "careful"))
		return mcp.NewToolResultText("done"), err
	})
	handler := server.NewStreamableHTTPServer(s)
	return handler, func() { _ = handler.Shutdown(context.Background()) }
}

// textOfMCPGo returns the text of a content, which mcp-go may or may not have decoded.
func textOfMCPGo(content any) string {
	switch content := content.(type) {
	case mcp.TextContent:
		return content.Text
	case map[string]any:
		return fmt.Sprint(content["text"])
	default:
		return fmt.Sprintf("%T", content)
	}
}

// mcpGoUser answers the questions of servers.
type mcpGoUser struct{}

func (mcpGoUser) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"size": "small"},
	}}, nil
}

func (mcpGoUser) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{Model: "m", SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("hello")}}, nil
}

func (mcpGoUser) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///home"}}}, nil
}

type featuredMCPGoClient struct {
	*client.Client
	messages, updates chan string
	modern            bool
}

func connectFeaturedMCPGo(ctx context.Context, at Endpoint, revision string) (featured, error) {
	options := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(&http.Client{Transport: newPool()}),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
	}
	if protocol.IsLegacy(revision) {
		options = append(options, transport.WithContinuousListening()) // the legacy revisions have this stream
	}
	t, err := transport.NewStreamableHTTP(at.URL, options...)
	if err != nil {
		return nil, err
	}
	c := &featuredMCPGoClient{
		client.NewClient(t, client.WithElicitationHandler(mcpGoUser{}), client.WithSamplingHandler(mcpGoUser{}), client.WithRootsHandler(mcpGoUser{})),
		make(chan string, 10), make(chan string, 10), protocol.IsModern(revision),
	}
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		switch n.Method {
		case "notifications/message":
			c.messages <- fmt.Sprint(n.Params.AdditionalFields["data"])
		case "notifications/resources/updated":
			c.updates <- fmt.Sprint(n.Params.AdditionalFields["uri"])
		}
	})
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	var request mcp.InitializeRequest
	request.Params.ProtocolVersion = revision
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	result, err := c.Initialize(ctx, request)
	if err == nil && result.ProtocolVersion != revision {
		err = fmt.Errorf("the session uses %s", result.ProtocolVersion)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *featuredMCPGoClient) read(ctx context.Context, uri string) (string, error) {
	var request mcp.ReadResourceRequest
	request.Params.URI = uri
	result, err := c.ReadResource(ctx, request)
	if err != nil || len(result.Contents) == 0 {
		return "", err
	}
	text, ok := result.Contents[0].(mcp.TextResourceContents)
	if !ok {
		return "", errNoAnswer
	}
	return text.Text, nil
}

func (c *featuredMCPGoClient) prompt(ctx context.Context, name string, arguments map[string]string) (string, error) {
	var request mcp.GetPromptRequest
	request.Params.Name, request.Params.Arguments = name, arguments
	result, err := c.GetPrompt(ctx, request)
	if err != nil || len(result.Messages) != 1 {
		return "", err
	}
	return textOfMCPGo(result.Messages[0].Content), nil
}

func (c *featuredMCPGoClient) complete(ctx context.Context, prompt, argument, typed string) ([]string, error) {
	var request mcp.CompleteRequest
	request.Params.Ref = mcp.PromptReference{Type: "ref/prompt", Name: prompt}
	request.Params.Argument = mcp.CompleteArgument{Name: argument, Value: typed}
	result, err := c.Complete(ctx, request)
	if err != nil {
		return nil, err
	}
	return result.Completion.Values, nil
}

func (c *featuredMCPGoClient) call(ctx context.Context, tool string) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name = tool
	result, err := c.CallTool(ctx, request)
	if err != nil || len(result.Content) == 0 {
		return "", err
	}
	return textOfMCPGo(result.Content[0]), nil
}

func (c *featuredMCPGoClient) structured(ctx context.Context, tool string) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name = tool
	result, err := c.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	content, _ := result.StructuredContent.(map[string]any)
	return fmt.Sprint(content["grams"]), nil
}

// updated opens a stream in 2026-07-28, where Subscribe only records the URI. There is no
// sign of when the stream is open, so updated calls the tool until an update comes.
func (c *featuredMCPGoClient) updated(ctx context.Context, uri, tool string) (string, error) {
	if c.modern {
		stop, err := c.ListenAsync(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}, nil)
		if err != nil {
			return "", err
		}
		defer stop()
	} else {
		var request mcp.SubscribeRequest
		request.Params.URI = uri
		if err := c.Subscribe(ctx, request); err != nil {
			return "", err
		}
	}
	for {
		if _, err := c.call(ctx, tool); err != nil {
			return "", err
		}
		once, cancel := context.WithTimeout(ctx, time.Second)
		updated, err := awaitMessage(once, c.updates)
		if cancel(); err == nil || ctx.Err() != nil {
			return updated, err
		}
	}
}

func (c *featuredMCPGoClient) logged(ctx context.Context, tool string) (string, error) {
	var request mcp.SetLevelRequest
	request.Params.Level = mcp.LoggingLevelInfo
	if err := c.SetLevel(ctx, request); err != nil {
		return "", err
	}
	if _, err := c.call(ctx, tool); err != nil {
		return "", err
	}
	return awaitMessage(ctx, c.messages)
}

func (c *featuredMCPGoClient) close() error { return c.Close() }
