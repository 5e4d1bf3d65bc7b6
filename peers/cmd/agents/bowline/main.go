// Command bowline does with Bowline alone what the row agent of peers/bench measures; the row program measures this program. Its arguments are
// the command of a server, which it starts three times.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command []string) error {
	c := client.New(protocol.Implementation{Name: "agent", Version: "1"}, client.Options{})
	defer c.Close(ctx)
	var sessions []*client.Session
	for range 3 {
		session, err := c.Connect(ctx, &stdio.Command{Path: command[0], Args: command[1:]})
		if err != nil {
			return err
		}
		sessions = append(sessions, session)
	}
	for _, session := range sessions {
		for _, err := range session.Tools(ctx) {
			if err != nil {
				return err
			}
		}
	}
	for n := range 20 {
		want := 2000 + n*48_000/19
		text, err := client.Call[string](ctx, sessions[n%3], "document", map[string]int{"count": want})
		if err != nil {
			return err
		}
		if len(text) != want {
			return fmt.Errorf("the document has %d bytes, not %d", len(text), want)
		}
	}
	return nil
}
