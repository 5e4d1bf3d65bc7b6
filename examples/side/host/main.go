// Host keeps a session with a server that asks its user, says when the server is lost
// and when it is back, and calls a tool of it every minute.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

func roots(context.Context, *client.Session) ([]protocol.Root, error) {
	return []protocol.Root{{URI: "file:///home/ada"}}, nil
}

func elicit(_ context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	fmt.Println(s.Name(), "asks:", p.Message)
	return client.Accept(map[string]any{"size": "small"})
}

func told(_ context.Context, s *client.Session, e client.Event) {
	switch e := e.(type) {
	case *client.Lost:
		fmt.Println(s.Name(), "is lost:", e.Reason)
	case *client.Restored, *client.ToolsChanged:
		fmt.Println(s.Name(), "may have other tools now")
	}
}

func main() {
	ctx := context.Background()
	host := client.New(protocol.Implementation{Name: "host", Version: "1.0"}, client.Options{
		Calls: client.CallOptions{WaitForReady: true}, Roots: roots, Elicit: elicit, OnEvent: told,
	})
	session, err := host.Start(ctx, "shop", &stdio.Command{Path: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	for range time.Tick(time.Minute) {
		fmt.Println(client.Call[string](ctx, session, "order", nil))
	}
}
