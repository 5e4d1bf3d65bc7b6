// Tool is a server with one tool, over standard input and output.
package main

import (
	"context"
	"log"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type numbers struct{ A, B int }

func add(_ context.Context, n numbers) (int, error) { return n.A + n.B, nil }

func main() {
	s := server.New(protocol.Implementation{Name: "adder", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "add", Description: "adds two numbers"}, add)
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
