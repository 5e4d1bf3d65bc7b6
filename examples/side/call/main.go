// Call is a client that calls a tool with typed values. Its session outlives the server,
// and it learns whether a call that failed may have been executed.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type query struct {
	City string `json:"city"`
}

type weather struct {
	Summary string `json:"summary"`
}

func main() {
	ctx := context.Background()
	patient := client.Options{Calls: client.CallOptions{WaitForReady: true, Retries: 3}}
	session, err := client.New(protocol.Implementation{Name: "reporter", Version: "1.0"}, patient).Connect(ctx, &stdio.Command{Path: "weather"})
	if err != nil {
		log.Fatal(err)
	}
	w, err := client.Call[weather](ctx, session, "forecast", query{"Oslo"})
	var failed *client.ToolError
	switch {
	case err == nil:
		fmt.Println(w.Summary)
	case errors.As(err, &failed):
		fmt.Println("the tool failed:", failed)
	case client.NotExecuted(err):
		fmt.Println("it can be called again:", err)
	default:
		fmt.Println("nobody knows:", err)
	}
	if err := session.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
