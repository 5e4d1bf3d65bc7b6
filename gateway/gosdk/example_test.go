package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
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

// The result of a call that the server has not answered says whether the server may have executed it.
func ExampleSupervised_outcome() {
	ctx := context.Background()
	c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := c.Connect(ctx, &gosdk.Supervised{Transport: &stdio.Command{Path: "travel"}}, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "book"})
	if err != nil {
		panic(err)
	}
	meta := result.Meta[gateway.MetaOutcome]
	if meta == nil {
		fmt.Println(result.Content) // the server's answer
		return
	}
	var outcome gateway.Outcome
	raw, err := json.Marshal(meta) // the SDK has read it as a map
	if err = errors.Join(err, json.Unmarshal(raw, &outcome)); err != nil {
		panic(err)
	}
	switch outcome.Delivery {
	case conn.NotSent:
		fmt.Println("nothing was booked, so try again:", outcome.Reason)
	default:
		fmt.Println("perhaps it was booked:", outcome.Reason)
	}
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
