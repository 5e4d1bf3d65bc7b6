package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A program that is missing is a StartError that wraps its cause.
func ExampleCommand() {
	server := &stdio.Command{
		Path: "no-such-mcp-server",
		Args: []string{"--root", "/srv/data"},
		Env:  []string{"LANG=C"},
	}
	_, err := server.Open(context.Background())

	var start *transport.StartError
	fmt.Println(errors.As(err, &start), errors.Is(err, exec.ErrNotFound))
	// Output: true true
}
