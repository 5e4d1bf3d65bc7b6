// Shop is an MCP server whose tools ask the user.
package main

import (
	"context"
	"errors"
	"log"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// remove asks one question, and has no effect before the answer. So it may run again
// from its start when the answer arrives: it is added with Reruns.
func remove(ctx context.Context, in struct {
	Bucket string `json:"bucket"`
}) (string, error) {
	if err := server.Confirm(ctx, "Delete "+in.Bucket+" and all that is in it?"); err != nil {
		return "", err
	}
	return "deleted " + in.Bucket, nil
}

// Size and Address are the forms that order shows.
type Size struct {
	Size string `json:"size" enum:"small,large"`
}

// An Address is where an order goes.
type Address struct {
	Street string `json:"street"`
	Email  string `json:"email" format:"email"`
}

// order reserves a shirt between its two questions. It must not run twice, and it must
// release the shirt if the second question is not answered: it is added with Waits.
func order(ctx context.Context, _ struct{}) (string, error) {
	wanted, err := server.Elicit[Size](ctx, "Which size?")
	if err != nil {
		return "", err
	}
	log.Print("reserved one that is ", wanted.Size)
	to, err := server.Elicit(ctx, "Where to?", Address{Email: "ada@example.com"})
	if err != nil {
		log.Print("released it")
		if errors.Is(err, server.ErrDeclined) {
			return "Nothing was ordered.", nil
		}
		return "", err
	}
	return "It goes to " + to.Street + ".", nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	forms := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}
	server.AddTool(s, protocol.Tool{Name: "remove", Description: "Deletes a bucket."}, remove, server.Asks(server.Reruns, forms))
	server.AddTool(s, protocol.Tool{Name: "order", Description: "Orders a shirt."}, order,
		server.Asks(server.Waits, forms), server.Form[Size](), server.Form[Address]())
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
