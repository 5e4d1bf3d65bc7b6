package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A view with other options for some calls. The session itself does not change.
func ExampleSession_With() {
	ctx := context.Background()
	session, err := client.New(info, client.Options{}).Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	options := session.Calls() // keep the rest of the options
	options.Timeout = 5 * time.Minute
	options.WaitForReady = true
	patient := session.With(options)
	weather, err := client.Call[forecast](ctx, patient, "forecast", city{City: "Oslo"})
	fmt.Println(weather.Text, err)
	fmt.Println(patient.Calls().Timeout, session.Calls().Timeout)
	// Output:
	// rain in Oslo <nil>
	// 5m0s 0s
}

// A series of calls that must all reach the same server session.
func ExampleSession_Pin() {
	ctx := context.Background()
	links := make(chan transport.Link, 2)
	s := server.New(protocol.Implementation{Name: "cart", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, in struct{ Item string }) (string, error) {
		return "added " + in.Item, nil
	})
	c := client.New(info, client.Options{
		Calls: client.CallOptions{WaitForReady: true},
		Conn:  conn.Tuning{BackoffMin: time.Millisecond}, // programs keep the default of one second
	})
	session, err := c.Connect(ctx, inmem.New(func(link transport.Link) { links <- link; s.Accept(link) }, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	cart := session.Pin()
	fmt.Println(client.Call[string](ctx, cart, "add", map[string]string{"Item": "rope"}))
	lost := session.Status()
	(<-links).Close(0) // ends the server session
	<-lost.Changed()
	_, err = client.Call[string](ctx, cart, "add", map[string]string{"Item": "anchor"})
	fmt.Println("the cart is gone:", errors.Is(err, client.ErrStale))
	if err := session.AwaitReady(ctx); err != nil {
		fmt.Println(err)
		return
	}
	cart = session.Pin()
	fmt.Println(client.Call[string](ctx, cart, "add", map[string]string{"Item": "rope"}))
	// Output:
	// added rope <nil>
	// the cart is gone: true
	// added rope <nil>
}

// A call that takes long becomes a task. Store its ID to wait for the result later,
// even after a restart of the program.
func ExampleSession_StartTool() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "render", Version: "1.0"}, server.Options{
		Tasks: &server.TaskOptions{PollInterval: 10 * time.Millisecond},
	})
	defer s.Close(ctx)
	server.AddTool(s, protocol.Tool{
		Name: "render", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional},
	}, func(_ context.Context, in struct{ Scene string }) (string, error) {
		return "rendered the " + in.Scene, nil
	})
	session, err := client.New(info, client.Options{Tasks: true}).Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	task, err := session.StartTool(ctx, &protocol.CallToolParams{Name: "render", Arguments: []byte(`{"Scene":"sea"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	saved := task.ID()
	result, err := session.Task(saved).Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content.Text())
	// Output: rendered the sea
}

// The skills of a server. ReadSkill verifies each file against the entry of its skill.
func ExampleSession_Skills() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	if err := skills.New(s).Add(fstest.MapFS{
		"refunds/SKILL.md": {Data: []byte("---\nname: refunds\ndescription: Refund an order.\n---\nAsk for its number.\n")},
	}); err != nil {
		fmt.Println(err)
		return
	}
	session, err := client.New(info, client.Options{}).Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	for skill, err := range session.Skills(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := session.ReadSkill(ctx, skill, skill.URI); errors.Is(err, client.ErrSkill) {
			fmt.Println("do not use it:", err)
			continue
		}
		fmt.Println("ask the user before a model sees", skill.URI)
	}
	// Output: ask the user before a model sees skill://refunds/SKILL.md
}

// While the server is away, a list may be a minute old.
func ExampleCallOptions_maxStale() {
	ctx := context.Background()
	links := make(chan transport.Link, 1)
	s := server.New(protocol.Implementation{Name: "weather", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "forecast"}, func(context.Context, city) (string, error) { return "rain", nil })
	session, err := client.New(info, client.Options{
		Conn: conn.Tuning{BackoffMin: time.Minute}, // how long the server stays away
	}).Connect(ctx, inmem.New(func(link transport.Link) { links <- link; s.Accept(link) }, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	lenient := session.With(client.CallOptions{MaxStale: time.Minute})
	if _, err := lenient.ListTools(ctx, nil); err != nil { // requests the list, and keeps it
		fmt.Println(err)
		return
	}
	lost := session.Status()
	(<-links).Close(0)
	<-lost.Changed()
	_, err = session.ListTools(ctx, nil)
	fmt.Println("there is no server:", errors.Is(err, client.ErrUnavailable))
	list, err := lenient.ListTools(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list.Tools[0].Name, "is known for less than a minute:", time.Since(list.Received) < time.Minute)
	// Output:
	// there is no server: true
	// forecast is known for less than a minute: true
}

// How a call can fail, and what to do in each case.
func Example_errors() {
	ctx := context.Background()
	session, err := client.New(info, client.Options{}).Connect(ctx, weatherServer())
	if err != nil {
		fmt.Println(err)
		return
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	_, tool := client.Call[string](ctx, session, "forecast", city{})
	_, result := client.Call[int](ctx, session, "forecast", city{City: "Oslo"})
	_, cancelled := client.Call[forecast](short, session, "forecast", city{City: "Oslo"})
	_, missing := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "weather://atlantis"})
	_, unsupported := session.ListPrompts(ctx, nil)
	if err := session.Close(ctx); err != nil {
		fmt.Println(err)
	}
	_, closed := session.ListTools(ctx, nil)

	for _, err := range []error{tool, result, cancelled, missing, unsupported, closed} {
		var failed *client.ToolError
		switch {
		case errors.As(err, &failed): // the tool ran and failed: show this to the model
			fmt.Println("the tool says:", failed.Result.Content.Text())
		case errors.As(err, new(*client.ResultError)):
			fmt.Println("the answer is not what the program expects")
		case errors.Is(err, context.Canceled):
			fmt.Println("the program has cancelled the call")
		case errors.Is(err, client.ErrNotFound):
			fmt.Println("no such resource")
		case errors.Is(err, client.ErrUnsupported):
			fmt.Println("the server does not offer it")
		case errors.Is(err, client.ErrClosed):
			fmt.Println("the session is closed")
		case client.NotExecuted(err):
			fmt.Println("safe to call again:", err)
		default: // ErrLost, ErrTimedOut: the server may have executed it
			fmt.Println("nobody knows whether it ran:", err)
		}
	}
	// Output:
	// the tool says: which city?
	// the answer is not what the program expects
	// the program has cancelled the call
	// no such resource
	// the server does not offer it
	// the session is closed
}

// A program shows one page, and goes on from there when its user wants the rest.
func ExampleSession_Tools() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "letters", Version: "1.0"}, server.Options{PageSize: 2})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	session, err := client.New(info, client.Options{}).Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	first, err := session.ListTools(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("first:", first.Tools[0].Name, first.Tools[1].Name)
	for tool, err := range session.Tools(ctx, &protocol.ListToolsParams{Cursor: first.NextCursor}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("then:", tool.Name)
	}
	// Output:
	// first: a b
	// then: c
	// then: d
	// then: e
}
