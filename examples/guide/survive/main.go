// Survive is a client whose server crashes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// report logs when the server was lost and when it came back. A program may tell its
// user, or read its lists again after a Restored event.
func report(_ context.Context, s *client.Session, e client.Event) {
	switch e := e.(type) {
	case *client.Lost:
		slog.Warn("lost", "server", s.Name(), "why", e.Reason)
	case *client.Restored:
		slog.Info("restored", "server", s.Name(), "away", e.Away.Round(time.Second))
	}
}

// call calls a tool, and prints which of the six possible outcomes the call had.
func call(ctx context.Context, session *client.Session, tool string, arguments map[string]string) {
	text, err := client.Call[string](ctx, session, tool, arguments)
	var failed *client.ToolError
	var refused *jsonrpc.Error
	switch {
	case err == nil:
		fmt.Println(tool, "answered:", text)
	case errors.As(err, &failed):
		fmt.Println(tool, "ran and failed:", failed)
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnsupported):
		fmt.Println(tool, "cannot be called like this:", err)
	case client.NotExecuted(err):
		fmt.Println(tool, "did not run, so calling again is safe:", err)
	case errors.Is(err, client.ErrLost):
		fmt.Println(tool, "may have run: the server was lost before it answered")
	case errors.As(err, &refused):
		fmt.Println(tool, "got an error from the server, whose code says more:", refused)
	default:
		fmt.Println(tool, "may have run:", err)
	}
}

func run(ctx context.Context) error {
	c := client.New(protocol.Implementation{Name: "survive", Version: "1.0"}, client.Options{
		Calls: client.CallOptions{
			WaitForReady: true,             // calls wait while the server is away
			Retries:      3,                // lost calls are retried if that is safe
			Timeout:      10 * time.Second, // for each attempt
		},
		OnEvent: report,
	})
	defer c.Close(context.WithoutCancel(ctx))

	session, err := c.Connect(ctx, &stdio.Command{Path: "bowline", Args: []string{"serve", "--stdio"}})
	if err != nil {
		return err
	}
	call(ctx, session, "echo", map[string]string{"message": "before"})
	call(ctx, session, "crash", nil)
	call(ctx, session, "echo", map[string]string{"message": "after"})
	call(ctx, session, "fail", map[string]string{"message": "on purpose"})
	call(ctx, session, "none", nil)
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
