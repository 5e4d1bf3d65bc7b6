package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

var info = protocol.Implementation{Name: "example", Version: "1.0"}

type city struct {
	City string `json:"city"`
}

type forecast struct {
	Text string `json:"text"`
}

// weatherServer stands for any server. A real program uses for example a
// &stdio.Command{Path: "weather"} or a &streamable.Client{URL: "https://…"}.
func weatherServer() transport.Transport {
	s := server.New(protocol.Implementation{Name: "weather", Version: "1.0"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil },
	})
	server.AddTool(s, protocol.Tool{Name: "forecast"}, func(_ context.Context, in city) (forecast, error) {
		if in.City == "" {
			return forecast{}, errors.New("which city?")
		}
		return forecast{Text: "rain in " + in.City}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "erase"}, func(ctx context.Context, in city) (string, error) {
		if err := server.Confirm(ctx, "Erase "+in.City+"?"); err != nil {
			return "", err
		}
		return "erased", nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: new(protocol.ElicitationCapability)}))
	updates := 0
	server.AddResource(s, protocol.Resource{URI: "weather://oslo", Name: "oslo"}, func(context.Context) (string, error) {
		if updates++; updates < 3 {
			time.AfterFunc(time.Millisecond, func() { s.ResourceUpdated("weather://oslo") })
		}
		return fmt.Sprint("reading ", updates), nil
	})
	return inmem.New(s.Accept, inmem.Options{})
}

// Connect to a server, call a tool, and distinguish the outcomes.
func Example() {
	ctx := context.Background()
	c := client.New(info, client.Options{})
	session, err := c.Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	for _, place := range []string{"Oslo", ""} {
		weather, err := client.Call[forecast](ctx, session, "forecast", city{City: place})
		var failed *client.ToolError
		switch {
		case err == nil:
			fmt.Println(weather.Text)
		case errors.As(err, &failed):
			fmt.Println("the tool says:", failed.Result.Content.Text())
		case client.NotExecuted(err):
			fmt.Println("safe to call again:", err)
		default:
			fmt.Println("nobody knows whether it ran:", err)
		}
	}
	// Output:
	// rain in Oslo
	// the tool says: which city?
}

// A session that outlives its servers: calls wait for a server and are repeated if that
// is safe, and the program gets an event for each gap.
func ExampleClient_Start() {
	c := client.New(info, client.Options{
		Calls: client.CallOptions{WaitForReady: true, Retries: 3},
		OnEvent: func(ctx context.Context, s *client.Session, e client.Event) {
			switch e := e.(type) {
			case *client.Lost:
				fmt.Println(s.Name(), "is away:", e.Reason, "next attempt at", e.Next)
			case *client.Restored, *client.ToolsChanged:
				fmt.Println(s.Name(), "may have other tools now")
			}
		},
	})
	ctx := context.Background()
	defer c.Close(ctx)
	session, err := c.Start(ctx, "weather", &stdio.Command{Path: "weather"})
	if err != nil {
		fmt.Println(err) // the command does not exist
		return
	}
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(tool.DisplayName())
	}
}

// A server asks the user a question. Setting Options.Elicit declares the capability.
func ExampleAccept() {
	ctx := context.Background()
	c := client.New(info, client.Options{
		Elicit: func(_ context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			fmt.Println(p.Message) // a real program names the server, shows the form, and lets the user decide
			return client.Decline()
		},
	})
	session, err := c.Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	_, err = client.Call[string](ctx, session, "erase", city{City: "Oslo"})
	fmt.Println(errors.As(err, new(*client.ToolError)))
	// Output:
	// Erase Oslo?
	// true
}

// A resource that the program reads again after each change, even if its server is
// replaced.
func ExampleSession_Watch() {
	ctx := context.Background()
	session, err := client.New(info, client.Options{}).Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	n := 0
	for contents, err := range session.Watch(ctx, "weather://oslo") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(contents.Text())
		if n++; n == 3 {
			break
		}
	}
	// Output:
	// reading 1
	// reading 2
	// reading 3
}

// Middleware for all methods, and for one.
func ExampleOn() {
	logged := func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			result, err := next(ctx, r)
			fmt.Println(r.Method, "failed:", err != nil)
			return result, err
		}
	}
	type params = protocol.CallToolParams
	type result = protocol.CallToolResult
	noErasing := client.On(func(ctx context.Context, p *params, next func(context.Context, *params) (*result, error)) (*result, error) {
		if p.Name == "erase" {
			return nil, errors.New("not here")
		}
		return next(ctx, p)
	})
	ctx := context.Background()
	c := client.New(info, client.Options{Middleware: []client.Middleware{logged, noErasing}})
	session, err := c.Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	_, err = client.Call[string](ctx, session, "erase", city{City: "Oslo"})
	fmt.Println(err)
	// Output:
	// tools/call failed: true
	// not here
}
