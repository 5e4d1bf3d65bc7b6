package gosdk_test

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/gosdk"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A program of the SDK changes the line of its transport, and its session outlives the server.
func ExampleSupervised() {
	ctx := context.Background()
	c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	// before: an &mcp.CommandTransport
	session, err := c.Connect(ctx, &gosdk.Supervised{Transport: &stdio.Command{Path: "weather"}}, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "forecast"})
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Content)
}

// A transport that exists for the SDK only serves a client of Bowline.
func ExampleOver() {
	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "agent", Version: "1"}, client.Options{})
	session, err := c.Connect(ctx, gosdk.Over(func() mcp.Transport {
		return &mcp.CommandTransport{Command: exec.Command("x")}
	}))
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx)
}
