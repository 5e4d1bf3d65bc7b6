// Questions is a server whose tool asks its user twice, in every revision.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type size struct {
	Size string `json:"size" enum:"small,large"`
}

type address struct {
	Street string `json:"street"`
}

func order(ctx context.Context, _ struct{}) (string, error) {
	wanted, err := server.Elicit[size](ctx, "Which size?")
	if err != nil {
		return "", err
	}
	to, err := server.Elicit[address](ctx, "Where to?")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a %s one goes to %s", wanted.Size, to.Street), nil
}

func main() {
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "order"}, order,
		server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
