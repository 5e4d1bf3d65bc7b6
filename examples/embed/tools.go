package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

type reversal struct {
	Text    string `json:"text" jsonschema:"the text to reverse"`
	Seconds int    `json:"seconds" jsonschema:"how long the call should take"`
}

// newTools returns the MCP server. Its tool writes a line to standard error at the
// beginning of each call.
func newTools() *server.Server {
	s := server.New(protocol.Implementation{Name: "tools", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "reverse", Description: "reverses a text"},
		func(ctx context.Context, in reversal) (string, error) {
			fmt.Fprintf(os.Stderr, "reversing %q\n", in.Text)
			work := time.NewTimer(time.Duration(in.Seconds) * time.Second)
			defer work.Stop()
			select {
			case <-work.C:
			case <-ctx.Done(): // the client has cancelled the call or disconnected
				return "", context.Cause(ctx)
			}
			letters := []rune(in.Text)
			slices.Reverse(letters)
			return string(letters), nil
		})
	return s
}
