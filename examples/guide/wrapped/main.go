// Wrapped is a server and a client with middleware, in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// logged prints every request that a client sends to the server, and how it ended.
func logged(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if r.Outgoing || r.Notification {
			return next(ctx, r)
		}
		result, err := next(ctx, r)
		fmt.Println("server:", r.Method, err)
		return result, err
	}
}

// callTool is what middleware for tool calls wraps.
type callTool = func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)

// limited gives every tool call ten seconds.
func limited(ctx context.Context, p *protocol.CallToolParams, next callTool) (*protocol.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return next(ctx, p)
}

func newServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "wrapped", Version: "1.0"}, server.Options{
		Middleware: []server.Middleware{logged, server.On(limited)}, // the first one is the outermost
	})
	calls := 0
	server.AddTool(s, protocol.Tool{Name: "work", Description: "Refuses the first call."}, func(context.Context, struct{}) (string, error) {
		if calls++; calls == 1 {
			return "", &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded"}
		}
		return "done", nil
	})
	return s
}

// patient is middleware of a client. It calls an overloaded server again, up to three
// times in all. CallOptions.Retries does so too, but after a second or more.
func patient(ctx context.Context, p *protocol.CallToolParams, next callTool) (*protocol.CallToolResult, error) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for attempt := 1; ; attempt++ {
		result, err := next(ctx, p)
		if attempt == 3 || !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}) {
			return result, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func run(ctx context.Context) (err error) {
	s := newServer()
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	c := client.New(protocol.Implementation{Name: "wrapped", Version: "1.0"}, client.Options{
		Middleware: []client.Middleware{client.On(patient)},
	})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	session, err := c.Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		return err
	}
	text, err := client.Call[string](ctx, session, "work", nil)
	fmt.Println("client:", text, err)
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
