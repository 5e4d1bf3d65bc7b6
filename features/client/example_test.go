package client_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func Example() {
	ctx := context.Background()
	greeter := server.New(protocol.Implementation{Name: "greeter", Version: "1.0"}, server.Options{})
	type person struct {
		Name string `json:"name" jsonschema:"who is greeted"`
	}
	server.AddTool(greeter, protocol.Tool{Name: "greet", Description: "says hello"},
		func(_ context.Context, in person) (string, error) {
			return "hello, " + in.Name, nil
		})
	served := make(chan error, 1)
	network := inmem.New(func(link transport.Link) {
		go func() { served <- greeter.ServeLink(ctx, link) }()
	}, inmem.Options{})

	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, network)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{
		Name: "greet", Arguments: json.RawMessage(`{"name":"world"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content.Text())
	fmt.Println(session.Close(ctx), <-served)
	// Output:
	// hello, world
	// <nil> <nil>
}
