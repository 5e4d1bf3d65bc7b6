// Command mcpgo does with mcp-go alone what the row agent of peers/bench measures; the row program measures this program. Its arguments are
// the command of a server, which it starts three times.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command []string) error {
	var clients []*client.Client
	for range 3 {
		c, err := client.NewStdioMCPClient(command[0], nil, command[1:]...)
		if err != nil {
			return err
		}
		defer c.Close()
		var initialize mcp.InitializeRequest
		initialize.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
		initialize.Params.ClientInfo = mcp.Implementation{Name: "agent", Version: "1"}
		if _, err := c.Initialize(ctx, initialize); err != nil {
			return err
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		if _, err := c.ListTools(ctx, mcp.ListToolsRequest{}); err != nil {
			return err
		}
	}
	for n := range 20 {
		want := 2000 + n*48_000/19
		var call mcp.CallToolRequest
		call.Params.Name, call.Params.Arguments = "document", map[string]int{"count": want}
		result, err := clients[n%3].CallTool(ctx, call)
		if err != nil {
			return err
		}
		if text, ok := result.Content[0].(mcp.TextContent); !ok || len(text.Text) != want {
			return fmt.Errorf("the document has not %d bytes", want)
		}
	}
	return nil
}
