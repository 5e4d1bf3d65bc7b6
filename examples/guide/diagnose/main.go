// Diagnose says why a client does not connect.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// watched returns options of a client that reports what its connections do.
func watched() client.Options {
	return client.Options{
		Conn: conn.Tuning{
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), // losses, and attempts that failed
			Hooks: telemetry.Hooks{
				Violation: func(v telemetry.Violation) { // what the server sent that is no MCP
					fmt.Fprintln(os.Stderr, "violation:", v.Err)
				},
			},
		},
	}
}

// explain prints why there is no session.
func explain(err error) {
	var failed *client.ConnectError
	if !errors.As(err, &failed) {
		fmt.Println(err)
		return
	}
	fmt.Println("attempts:", failed.Attempts)
	fmt.Println("the last one failed because:", failed.Last.Kind)
}

// run connects to a server that is a child process. It shows what the child writes to
// its standard error, and writes all messages to a file.
func run(ctx context.Context, path string, args []string, messages *os.File) (err error) {
	c := client.New(protocol.Implementation{Name: "diagnose", Version: "1.0"}, watched())
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	recorded := transcript.NewWriter(messages, transcript.Options{Times: true})
	session, err := c.Connect(ctx, transcript.Tap(&stdio.Command{Path: path, Args: args, Stderr: os.Stderr}, recorded.Observe))
	if err != nil {
		explain(err)
		return nil
	}
	fmt.Println(c.Report())
	return session.Ping(ctx)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if len(os.Args) < 2 {
		log.Fatal("usage: diagnose COMMAND [ARGUMENT ...]")
	}
	messages, err := os.Create("messages.txt")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, os.Args[1], os.Args[2:], messages), messages.Close()); err != nil {
		log.Fatal(err)
	}
}
