// Host keeps sessions with the servers of an mcp.json, and applies the file anew
// whenever it receives SIGHUP.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
)

// apply makes the set run exactly the servers that the file lists now. A mistake in one
// entry does not affect the others. A file that is not valid JSON changes nothing.
func apply(ctx context.Context, set *sessions.Set, path string) {
	file, err := mcpjson.Load(path)
	if err != nil {
		log.Print(err)
		return
	}
	changes, err := set.Apply(ctx, file)
	if err != nil {
		log.Print(err) // about the servers in changes.Failed
	}
	fmt.Println("started", changes.Started, "restarted", changes.Restarted, "stopped", changes.Stopped, "failed", changes.Failed)
}

func run(ctx context.Context, path string) (err error) {
	set := sessions.New(protocol.Implementation{Name: "host", Version: "1.0"}, sessions.Options{
		Client: client.Options{Calls: client.CallOptions{WaitForReady: true}}, // the default; the entry of a server may set it differently
	})
	defer func() { err = errors.Join(err, set.Close(context.WithoutCancel(ctx))) }()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGHUP)
	defer signal.Stop(changed)
	for {
		apply(ctx, set, path)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: host FILE")
	}
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
