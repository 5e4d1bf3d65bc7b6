// Cached is a client that knows the tools of its server while the server is away.
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
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// printed is middleware that prints each request for the list of tools.
func printed(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if r.Method == protocol.MethodListTools {
			fmt.Println("the server lists its tools")
		}
		return next(ctx, r)
	}
}

// newServer allows its clients to reuse a list for a minute.
func newServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "cached", Version: "1.0"}, server.Options{
		ListTTL:    time.Minute,
		Middleware: []server.Middleware{printed},
	})
	server.AddTool(s, protocol.Tool{Name: "work", Description: "Works."}, func(context.Context, struct{}) (string, error) { return "done", nil })
	return s
}

// list prints the tools of the server. While the server is away, it accepts a list that
// is up to an hour old.
func list(ctx context.Context, session *client.Session) error {
	for tool, err := range session.With(client.CallOptions{MaxStale: time.Hour}).Tools(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(tool.Name)
	}
	return nil
}

func run(ctx context.Context) (err error) {
	s := newServer()
	c := client.New(protocol.Implementation{Name: "cached", Version: "1.0"}, client.Options{CacheBytes: 1 << 20})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	session, err := c.Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	if err := errors.Join(list(ctx, session), list(ctx, session)); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	if err := s.Close(ctx); err != nil { // now the server is away
		return err
	}
	return list(ctx, session)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
