package bowline_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A server with one tool, and a client that calls it in the same process.
func Example() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "adder", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, n struct{ A, B int }) (int, error) {
		return n.A + n.B, nil
	})
	defer s.Close(ctx)

	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	fmt.Println(client.Call[int](ctx, session, "add", map[string]int{"A": 2, "B": 3}))
	// Output: 5 <nil>
}
