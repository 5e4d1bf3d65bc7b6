package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A host answers questions of servers and handles their events. Each handler gets the
// session of the server.
func Example_host() {
	ctx := context.Background()
	cleaner := server.New(protocol.Implementation{Name: "cleaner", Version: "1.0"}, server.Options{})
	needs := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}, Roots: &protocol.RootsCapability{}}
	server.AddTool(cleaner, protocol.Tool{Name: "clean"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := server.Roots(ctx)
		if err != nil {
			return "", err
		}
		if err := server.Confirm(ctx, "Clean "+roots[0].URI+"?"); err != nil {
			return "", err
		}
		return "cleaned", nil
	}, server.Asks(server.Waits, needs))

	changes := make(chan string, 10)
	host := client.New(protocol.Implementation{Name: "host", Version: "1.0"}, client.Options{
		Calls: client.CallOptions{WaitForReady: true},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home/ada"}}, nil
		},
		Elicit: func(_ context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			fmt.Println(s.Name(), "asks:", p.Message)
			return client.Accept(nil) // a real host asks its user, and can also return Decline or Dismiss
		},
		OnEvent: func(_ context.Context, s *client.Session, e client.Event) {
			switch e.(type) {
			case *client.Restored, *client.ToolsChanged:
				changes <- s.Name() + ": the tools may have changed"
			}
		},
	})
	defer host.Close(ctx)
	session, err := host.Start(ctx, "cleaner", inmem.New(cleaner.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-changes) // Restored: the server is ready
	fmt.Println(client.Call[string](ctx, session, "clean", nil))

	cleaner.RemoveTools("clean")
	fmt.Println(<-changes)
	// Output:
	// cleaner: the tools may have changed
	// cleaner asks: Clean file:///home/ada?
	// cleaned <nil>
	// cleaner: the tools may have changed
}

// A session survives the end of its server: calls wait for the new server. A pinned
// session refuses the new server.
func Example_survive() {
	ctx := context.Background()
	running := make(chan *server.Server, 10)
	network := inmem.New(func(link transport.Link) { // one server for each link, like a child process
		s := server.New(protocol.Implementation{Name: "counter", Version: "1.0"}, server.Options{})
		n := 0
		server.AddTool(s, protocol.Tool{Name: "count"}, func(context.Context, struct{}) (int, error) {
			n++
			return n, nil
		})
		s.Accept(link)
		running <- s
	}, inmem.Options{})

	events := make(chan client.Event, 10)
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{
		Calls:   client.CallOptions{WaitForReady: true, Retries: 3},
		OnEvent: func(_ context.Context, _ *client.Session, e client.Event) { events <- e },
		Conn:    conn.Tuning{BackoffMin: time.Millisecond}, // programs keep the default of one second
	})
	session, err := c.Connect(ctx, network)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	pinned := session.Pin()
	for range 2 {
		fmt.Println(client.Call[int](ctx, session, "count", nil))
	}

	if err := (<-running).Close(ctx); err != nil { // ends the server
		fmt.Println(err)
	}
	for e := range events {
		if _, lost := e.(*client.Lost); lost {
			break
		}
	}
	fmt.Println(client.Call[int](ctx, session, "count", nil)) // the new server starts at 1
	_, err = client.Call[int](ctx, pinned, "count", nil)
	fmt.Println(errors.Is(err, client.ErrStale), client.NotExecuted(err))
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 1 <nil>
	// true true
}

// A program that handles "connection lost" and "ready again" only.
func ExampleSession_Changes() {
	ctx := context.Background()
	running := make(chan *server.Server, 10)
	network := inmem.New(func(link transport.Link) {
		s := server.New(protocol.Implementation{Name: "counter", Version: "1.0"}, server.Options{})
		s.Accept(link)
		running <- s
	}, inmem.Options{})
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{
		Conn: conn.Tuning{BackoffMin: time.Millisecond}, // programs keep the default of one second
	})
	session, err := c.Connect(ctx, network)
	switch {
	case errors.Is(err, client.ErrDenied):
		fmt.Println("who are you?", err)
		return
	case err != nil:
		fmt.Println(err)
		return
	}
	for status := range session.Changes(ctx) {
		switch {
		case status.State != client.Ready:
			fmt.Println("connection lost:", status.Reason.Kind)
		case status.Epoch == 1:
			fmt.Println("ready")
			_ = (<-running).Close(ctx) // ends the server
		default:
			fmt.Println("ready again")
			session.Stop() // which ends the loop
		}
	}
	// Output:
	// ready
	// connection lost: peer ended
	// ready again
}

// Call returns a result as the type that the caller asks for.
func ExampleCall() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "library", Version: "1.0"}, server.Options{})
	type book struct {
		Title string `json:"title"`
	}
	server.AddTool(s, protocol.Tool{Name: "books"}, func(context.Context, struct{}) ([]book, error) {
		return []book{{"Emma"}, {"Persuasion"}}, nil
	})
	session, err := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{}).Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	fmt.Println(client.Call[[]book](ctx, session, "books", nil))
	fmt.Println(client.Call[string](ctx, session, "books", nil))
	_, err = client.Call[int](ctx, session, "books", nil)
	fmt.Println("it is no number:", errors.As(err, new(*client.ResultError)))
	_, err = client.Call[string](ctx, session, "films", nil)
	var refused *jsonrpc.Error
	fmt.Println("there is no such tool:", errors.As(err, &refused), refused.Code)
	// Output:
	// [{Emma} {Persuasion}] <nil>
	// [{"title":"Emma"},{"title":"Persuasion"}] <nil>
	// it is no number: true
	// there is no such tool: true -32602
}
