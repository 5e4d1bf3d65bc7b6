package transport_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A counted transport counts the calls that its links send. A transport that wraps
// another one is the simplest to write, because its links keep the rules of the wrapped
// links. With Unwrap, it also keeps their speed and what they know of their peer.
type counted struct {
	transport.Transport
	calls int
}

// Unwrap keeps what the wrapped transport can do.
func (c *counted) Unwrap() transport.Transport { return c.Transport }

// Traits implements transport.Describer.
func (c *counted) Traits() transport.Traits {
	traits := transport.TraitsOf(c.Transport)
	traits.Name = "counted"
	return traits
}

func (c *counted) Open(ctx context.Context) (transport.Link, error) {
	link, err := c.Transport.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &countedLink{link, c}, nil
}

type countedLink struct {
	transport.Link
	transport *counted
}

// Unwrap keeps what the wrapped link can do.
func (l *countedLink) Unwrap() transport.Link { return l.Link }

// Send counts a call, which it recognizes by its Route, because a link never decodes a
// frame.
func (l *countedLink) Send(o transport.Outbound) error {
	err := l.Link.Send(o)
	if err == nil && o.Route.Kind == jsonrpc.KindRequest && o.Route.Method == protocol.MethodCallTool {
		l.transport.calls++
	}
	return err
}

// A transport that wraps another one. examples/transport is a complete one, over
// sockets.
func Example() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) {
		return "Hello.", nil
	})
	to := &counted{Transport: inmem.New(s.Accept, inmem.Options{})}

	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		fmt.Println(client.Call[string](ctx, session, "greet", nil))
	}
	fmt.Println(session.Name(), session.Close(ctx), s.Close(ctx))
	fmt.Println(to.calls, "calls")
	// Output:
	// Hello. <nil>
	// Hello. <nil>
	// counted <nil> <nil>
	// 2 calls
}
