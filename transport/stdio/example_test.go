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

// The settings of an exec.Cmd are those of every child: its environment, its
// directory, its attributes. Started tells the process id.
func ExampleCommand_cmd() {
	cmd := exec.Command("cat")
	cmd.Env = []string{"PATH=/usr/bin:/bin"} // and nothing of ours
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

// A server of another JSON-RPC protocol, here one that frames as language servers
// do, behind a socket. A client over it is made like any other:
// conn.New(server, conn.Options{}).
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
	fmt.Println(err != nil) // nobody listens on port 0
	// Output: true
}
