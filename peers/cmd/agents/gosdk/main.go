// Command gosdk does with go-sdk alone what the row agent of peers/bench measures; the row program measures this program. Its arguments are
// the command of a server, which it starts three times.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command []string) error {
	c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	var sessions []*mcp.ClientSession
	for range 3 {
		session, err := c.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(command[0], command[1:]...)}, nil)
		if err != nil {
			return err
		}
		defer session.Close()
		sessions = append(sessions, session)
	}
	for _, session := range sessions {
		for _, err := range session.Tools(ctx, nil) {
			if err != nil {
				return err
			}
		}
	}
	for n := range 20 {
		want := 2000 + n*48_000/19
		result, err := sessions[n%3].CallTool(ctx, &mcp.CallToolParams{Name: "document", Arguments: map[string]int{"count": want}})
		if err != nil {
			return err
		}
		if text, ok := result.Content[0].(*mcp.TextContent); !ok || len(text.Text) != want {
			return fmt.Errorf("the document has not %d bytes", want)
		}
	}
	return nil
}
