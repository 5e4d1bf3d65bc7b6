package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func featuredBowline(t testing.TB, _ string) (http.Handler, func()) {
	return featuredBowlineWith(t, server.Options{})
}

// featuredBowlineOf supports one revision, for clients that cannot request a revision.
func featuredBowlineOf(t testing.TB, revision string) (http.Handler, func()) {
	return featuredBowlineWith(t, server.Options{ProtocolVersions: []string{revision}})
}

// A weight is what the tool "weigh" returns.
type weight struct {
	Grams int `json:"grams"`
}

func featuredBowlineWith(t testing.TB, o server.Options) (http.Handler, func()) {
	o.OnSubscribe = func(context.Context, string) error { return nil }
	s := server.New(bowlineInfo, o)
	server.AddTool(s, protocol.Tool{Name: "weigh"}, func(context.Context, nothing) (weight, error) { return weight{7}, nil })
	server.AddTool(s, protocol.Tool{Name: "touch"}, func(context.Context, nothing) (string, error) {
		s.ResourceUpdated("config://app")
		return "done", nil
	})
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"}, func(context.Context) (string, error) { return "on", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"},
		func(_ context.Context, in struct {
			ID string `json:"id"`
		}) (string, error) {
			return "user " + in.ID, nil
		})
	server.AddPrompt(s, protocol.Prompt{Name: "review"}, func(_ context.Context, in struct {
		Style string `json:"style" enum:"short,thorough"`
	}) (string, error) {
		return "a " + in.Style + " review", nil
	})
	needs := protocol.ClientCapabilities{
		Elicitation: &protocol.ElicitationCapability{}, Sampling: &protocol.SamplingCapability{}, Roots: &protocol.RootsCapability{},
	}
	server.AddTool(s, protocol.Tool{Name: "elicit"}, func(ctx context.Context, _ nothing) (string, error) {
		form, err := server.Elicit[struct {
			Size string `json:"size" enum:"small,large"`
		}](ctx, "Which size?")
		return form.Size, err
	}, server.Asks(server.Waits, needs))
	server.AddTool(s, protocol.Tool{Name: "sample"}, func(ctx context.Context, _ nothing) (string, error) {
		sampled, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 10, Messages: []protocol.SamplingMessage{
			{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}},
		}})
		if err != nil {
			return "", err
		}
		return sampled.Content.Text(), nil
	}, server.Asks(server.Reruns, needs))
	server.AddTool(s, protocol.Tool{Name: "roots"}, func(ctx context.Context, _ nothing) (string, error) {
		roots, err := server.Roots(ctx)
		if err != nil || len(roots) == 0 {
			return "", err
		}
		return roots[0].URI, nil
	}, server.Asks(server.Reruns, needs))
	server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, _ nothing) (string, error) {
		server.Logger(ctx).Warn("careful")
		return "done", nil
	})
	h := streamable.NewHandler(watchServer(t, s), streamable.HandlerOptions{})
	return h, func() {
		_ = s.Close(context.Background())
		_ = h.Close(0)
	}
}

type featuredBowlineClient struct {
	session  *client.Session
	messages chan string // of logs
	updates  chan string // URIs of resources
}

// A bowlineUser contains the answers of a Bowline client's user.
type bowlineUser struct {
	form map[string]any
	root string
}

func connectBowlineUser(ctx context.Context, at Endpoint, revision string, user bowlineUser) (*featuredBowlineClient, error) {
	c := &featuredBowlineClient{messages: make(chan string, 10), updates: make(chan string, 10)}
	o := client.Options{
		ProtocolVersion: revision, FailFast: true, LogLevel: protocol.LogInfo,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(user.form)
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: user.root}}, nil
		},
		OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			switch e := e.(type) {
			case *client.LogMessage:
				tell(c.messages, messageText(e.Data))
			case *client.ResourceUpdated:
				tell(c.updates, e.URI)
			}
		},
	}
	session, err := client.New(bowlineInfo, o).Connect(ctx, observed(ctx, at.transport()))
	if err != nil {
		return nil, err
	}
	if got := session.Server().ProtocolVersion; got != revision {
		return nil, fmt.Errorf("the session uses %s", got)
	}
	c.session = session
	return c, nil
}

// tell drops a message that nothing waits for.
func tell(to chan<- string, message string) {
	select {
	case to <- message:
	default:
	}
}

// transport returns a transport to the endpoint.
func (e Endpoint) transport() transport.Transport {
	if e.URL == "" {
		return &stdio.Command{Path: e.Command[0], Args: e.Command[1:]}
	}
	return &streamable.Client{URL: e.URL, HTTP: &http.Client{Transport: newPool()}}
}

func (c *featuredBowlineClient) read(ctx context.Context, uri string) (string, error) {
	result, err := c.session.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return result.Text(), nil
}

func (c *featuredBowlineClient) prompt(ctx context.Context, name string, arguments map[string]string) (string, error) {
	result, err := c.session.GetPrompt(ctx, &protocol.GetPromptParams{Name: name, Arguments: arguments})
	if err != nil || len(result.Messages) != 1 {
		return "", err
	}
	return protocol.Contents{result.Messages[0].Content}.Text(), nil
}

func (c *featuredBowlineClient) complete(ctx context.Context, prompt, argument, typed string) ([]string, error) {
	result, err := c.session.Complete(ctx, &protocol.CompleteParams{
		Ref: protocol.CompleteReference{Name: prompt}, Argument: protocol.CompleteArgument{Name: argument, Value: typed},
	})
	if err != nil {
		return nil, err
	}
	return result.Completion.Values, nil
}

func (c *featuredBowlineClient) call(ctx context.Context, tool string) (string, error) {
	return client.Call[string](ctx, c.session, tool, nil)
}

func (c *featuredBowlineClient) logged(ctx context.Context, tool string) (string, error) {
	if !protocol.IsModern(c.session.Server().ProtocolVersion) {
		if err := c.session.SetLogLevel(ctx, protocol.LogInfo); err != nil {
			return "", err
		}
	}
	for { // mcp-go loses a message that it sends right before the answer, now and then
		if _, err := c.call(ctx, tool); err != nil {
			return "", err
		}
		once, cancel := context.WithTimeout(ctx, time.Second)
		message, err := awaitMessage(once, c.messages)
		if cancel(); err == nil || ctx.Err() != nil {
			return message, err
		}
	}
}

func (c *featuredBowlineClient) structured(ctx context.Context, tool string) (string, error) {
	got, err := client.Call[weight](ctx, c.session, tool, nil)
	return fmt.Sprint(got.Grams), err
}

func (c *featuredBowlineClient) updated(ctx context.Context, uri, tool string) (string, error) {
	if err := c.session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
		return "", err
	}
	if _, err := c.call(ctx, tool); err != nil {
		return "", err
	}
	return awaitMessage(ctx, c.updates)
}

func awaitMessage(ctx context.Context, messages <-chan string) (string, error) {
	select {
	case message := <-messages:
		return message, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no message came: %w", context.Cause(ctx))
	}
}

func (c *featuredBowlineClient) close() error { return c.session.Close(context.Background()) }

// messageText returns the text of a log message: all of its data, or the member msg.
func messageText(data json.RawMessage) string {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return text
	}
	var record struct{ Msg string }
	_ = json.Unmarshal(data, &record)
	return record.Msg
}
