package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// If the program is missing, the error is a StartError that wraps its cause.
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

// Each child gets the settings of the exec.Cmd: its environment, its directory, its
// attributes. Started gets the process id.
func ExampleCommand_cmd() {
	cmd := exec.Command("cat")
	cmd.Env = []string{"PATH=/usr/bin:/bin"} // replaces the environment of this process
	cmd.Dir = "/"
	server := &stdio.Command{Cmd: cmd, Started: func(pid int) { fmt.Println(pid > 0) }}
	link, err := server.Open(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(link.Close(0))
	// Output:
	// true
	// <nil>
}

// A server of another JSON-RPC protocol behind a socket, here with the framing of
// language servers. A client uses it like any other: conn.New(server, conn.Options{}).
func ExampleStreams() {
	server := &stdio.Streams{
		Framing: stdio.ContentLength,
		Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return nil, nil, err
			}
			return c, c, nil
		},
	}
	_, err := server.Open(context.Background())
	fmt.Println(err != nil) // port 0 has no listener
	// Output: true
}
