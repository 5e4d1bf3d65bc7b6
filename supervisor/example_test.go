package supervisor_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A child that fails is run again. In the end it works until the supervisor stops.
func Example() {
	working := make(chan struct{})
	s := supervisor.New(supervisor.Options{
		Name:    "example",
		OnEvent: func(e supervisor.Event) { fmt.Println(e) },
	})
	attempt := 0
	_, err := s.Start(context.Background(), supervisor.ChildSpec{ID: "indexer", Run: func(ctx context.Context) error {
		if attempt++; attempt < 3 {
			return fmt.Errorf("attempt %d failed", attempt)
		}
		close(working)
		<-ctx.Done()
		return nil
	}})
	if err != nil {
		fmt.Println(err)
	}
	<-working
	if err := s.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// supervisor example: indexer: child started
	// supervisor example: indexer: child restarted: attempt 1 failed
	// supervisor example: indexer: child restarted: attempt 2 failed
	// supervisor example: indexer: child stopped
}

// The pool depends on the configuration: it starts after config, is restarted with it, and is stopped
// first.
func ExampleChildSpec() {
	app := supervisor.New(supervisor.Options{Name: "app", Strategy: supervisor.RestForOne})
	pool := supervisor.New(supervisor.Options{Name: "pool"})
	waiting := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Printf("%s ends: %v\n", name, context.Cause(ctx))
			return nil
		}
	}
	load := func(context.Context) error { fmt.Println("config is loaded"); return nil }
	start := func(parent *supervisor.Supervisor, spec supervisor.ChildSpec) {
		if _, err := parent.Start(context.Background(), spec); err != nil {
			fmt.Println(err)
		}
	}
	start(app, supervisor.ChildSpec{ID: "config", Init: load, Run: waiting("config")})
	start(app, supervisor.ChildSpec{ID: "pool", Supervisor: pool})
	start(pool, supervisor.ChildSpec{ID: "worker", Run: waiting("worker")})

	fmt.Println(app.Stop(context.Background()))
	// Output:
	// config is loaded
	// worker ends: supervisor: stopped
	// config ends: supervisor: stopped
	// <nil>
}

// Both sides of a connection are supervised. A name that is in use is refused.
func ExampleSupervisor_Connect() {
	s := supervisor.New(supervisor.Options{})
	weather := conn.New(inmem.New(func(link transport.Link) {
		if _, err := s.Connect(context.Background(), conn.Accept(link, conn.Options{})); err != nil {
			fmt.Println(err)
		}
	}, inmem.Options{}), conn.Options{Tuning: conn.Tuning{Name: "weather"}})

	child, err := s.Connect(context.Background(), weather)
	if err != nil {
		fmt.Println(err)
	}
	if err := weather.AwaitReady(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(child.ID(), "is", weather.State())

	var duplicate *supervisor.DuplicateError
	_, err = s.Connect(context.Background(), weather)
	fmt.Println("again:", errors.As(err, &duplicate))

	fmt.Println("stopped:", s.Stop(context.Background()))
	// Output:
	// weather is ready
	// again: true
	// stopped: <nil>
}
