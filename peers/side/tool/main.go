// Tool is a server with one tool, over standard input and output.
package main

import (
	"context"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type numbers struct{ A, B int }

type sum struct{ Result int }

func add(_ context.Context, _ *mcp.CallToolRequest, n numbers) (*mcp.CallToolResult, sum, error) {
	return nil, sum{n.A + n.B}, nil
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "adder", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "adds two numbers"}, add)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
