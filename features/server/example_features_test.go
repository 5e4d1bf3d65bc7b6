package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// use connects a client in memory and lets it use the server.
func use(s *server.Server, o client.Options, f func(ctx context.Context, session *client.Session) error) {
	ctx := context.Background()
	session, err := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, o).Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err == nil {
		err = errors.Join(f(ctx, session), session.Close(ctx))
	}
	if err = errors.Join(err, s.Close(ctx)); err != nil {
		fmt.Println(err)
	}
}

// Functions provide resources: one resource by its URI, or many by a template.
func ExampleAddResource() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"},
		func(context.Context) (string, error) { return "colour: blue", nil })
	names := map[int]string{7: "Grace"}
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"},
		func(_ context.Context, in struct {
			ID int `json:"id"`
		}) (string, error) {
			if name, ok := names[in.ID]; ok {
				return name, nil
			}
			return "", server.ErrNotFound
		})

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		for _, uri := range []string{"config://app", "users://7", "users://8"} {
			result, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
			if err != nil {
				fmt.Println(uri, "was not found:", errors.Is(err, client.ErrNotFound))
				continue
			}
			fmt.Println(result.Text())
		}
		return nil
	})
	// Output:
	// colour: blue
	// Grace
	// users://8 was not found: true
}

// The fields of a struct are the arguments of a prompt. Enums are completed
// automatically, other arguments by a function.
func ExampleAddPrompt() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	type review struct {
		File  string `json:"file" jsonschema:"what to review"`
		Style string `json:"style,omitzero" enum:"short,thorough"`
	}
	server.AddPrompt(s, protocol.Prompt{Name: "review"},
		func(_ context.Context, r review) (string, error) {
			return "Give a " + r.Style + " review of " + r.File, nil
		},
		server.Completion{Argument: "file", Values: func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
			return []string{typed + ".go", typed + "_test.go"}, nil
		}})

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		prompt, err := session.GetPrompt(ctx, &protocol.GetPromptParams{Name: "review", Arguments: map[string]string{"file": "main.go", "style": "short"}})
		if err != nil {
			return err
		}
		fmt.Println(prompt.Messages[0].Content.(*protocol.TextContent).Text)
		proposed, err := session.Complete(ctx, &protocol.CompleteParams{
			Ref:      protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "review"},
			Argument: protocol.CompleteArgument{Name: "style", Value: "th"},
		})
		if err != nil {
			return err
		}
		fmt.Println(proposed.Completion.Values)
		return nil
	})
	// Output:
	// Give a short review of main.go
	// [thorough]
}

// A tool that asks before it acts. It runs once, for clients of both eras.
func ExampleConfirm() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	type bucket struct {
		Name string `json:"name"`
	}
	server.AddTool(s, protocol.Tool{Name: "delete"}, func(ctx context.Context, in bucket) (string, error) {
		if err := server.Confirm(ctx, "Delete "+in.Name+"?"); err != nil {
			return "", err // the model gets the text that the user declined
		}
		return "deleted " + in.Name, nil
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))

	user := client.Options{Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		if strings.Contains(p.Message, "production") {
			return client.Decline()
		}
		return client.Accept(map[string]any{})
	}}
	use(s, user, func(ctx context.Context, session *client.Session) error {
		for _, name := range []string{"test", "production"} {
			text, err := client.Call[string](ctx, session, "delete", bucket{name})
			fmt.Println(text, err)
		}
		return nil
	})
	// Output:
	// deleted test <nil>
	//  client: tool "delete" failed: the user declined
}

// A middleware that logs requests in both directions: here a call, and the question
// that it leads to in the legacy revisions.
func ExampleMiddleware() {
	logged := func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if r.Notification {
				return next(ctx, r)
			}
			direction := "in "
			if r.Outgoing {
				direction = "out"
			}
			fmt.Println(direction, r.Method)
			result, err := next(ctx, r)
			fmt.Println(direction, r.Method, "has ended:", err)
			return result, err
		}
	}
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{Middleware: []server.Middleware{logged}})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := server.Roots(ctx)
		return fmt.Sprint("roots: ", len(roots)), err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Roots: &protocol.RootsCapability{}}))

	o := client.Options{ProtocolVersion: protocol.LatestLegacy, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		return []protocol.Root{{URI: "file:///home/ada"}}, nil
	}}
	use(s, o, func(ctx context.Context, session *client.Session) error {
		text, err := client.Call[string](ctx, session, "greet", nil)
		fmt.Println(text)
		return err
	})
	// Output:
	// in  initialize
	// in  initialize has ended: <nil>
	// in  tools/call
	// out roots/list
	// out roots/list has ended: <nil>
	// in  tools/call has ended: <nil>
	// roots: 1
}

// On returns a middleware for one method.
func ExampleOn() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{Middleware: []server.Middleware{
		server.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			if p.Name == "shell" {
				return nil, &jsonrpc.Error{Code: 403, Message: "not here"}
			}
			return next(ctx, p)
		}),
	}})
	server.AddTool(s, protocol.Tool{Name: "shell"}, func(context.Context, struct{}) (string, error) { return "root#", nil })

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		_, err := client.Call[string](ctx, session, "shell", nil)
		var refused *jsonrpc.Error
		fmt.Println(errors.As(err, &refused), refused.Message)
		return nil
	})
	// Output: true not here
}

// A handler sends log messages to the client that it serves, from the level which that
// client has set.
func ExampleLogger() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "clone"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Logger(ctx).Debug("a detail")
		server.Logger(ctx).Warn("the repository is large")
		return "cloned", nil
	})

	received := make(chan string, 1)
	o := client.Options{LogLevel: protocol.LogInfo, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			received <- fmt.Sprint(m.Level, " ", string(m.Data))
		}
	}}
	use(s, o, func(ctx context.Context, session *client.Session) error {
		_, err := client.Call[string](ctx, session, "clone", nil)
		fmt.Println(<-received)
		return err
	})
	// Output: warning "the repository is large"
}
