// Tables is an MCP server that books tables. Its tests show how servers and clients
// are tested.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A Table is what people ask for.
type Table struct {
	People int    `json:"people" minimum:"1" maximum:"12"`
	Time   string `json:"time" format:"time"`
}

// book books a table if the user agrees.
func book(ctx context.Context, wanted Table) (string, error) {
	if err := server.Confirm(ctx, fmt.Sprintf("A table for %d at %s?", wanted.People, wanted.Time)); err != nil {
		return "", err
	}
	return fmt.Sprintf("booked for %d at %s", wanted.People, wanted.Time), nil
}

// newServer makes the server, for main and for the tests.
func newServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "tables", Version: "1.0"}, server.Options{})
	asks := server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}})
	server.AddTool(s, protocol.Tool{Name: "book", Description: "Books a table."}, book, asks)
	return s
}

// dinner is the client's part: it books a table for four. It waits while the server is
// away, and retries the call if the server certainly did not run it.
func dinner(ctx context.Context, session *client.Session) (string, error) {
	patient := session.With(client.CallOptions{WaitForReady: true, Retries: 3})
	return client.Call[string](ctx, patient, "book", Table{People: 4, Time: "19:30:00"})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := newServer()
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
