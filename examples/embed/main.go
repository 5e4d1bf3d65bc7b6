// The example embed is an HTTP service that calls the tools of an MCP server, which is
// its child process. README.md explains it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/transport/stdio"
)

func main() {
	tools := flag.Bool("mcp-server", false, "serve MCP on the standard streams, as the child process does")
	address := flag.String("http", "", "serve HTTP at this address until interrupted; default: run the demo")
	flag.Parse()

	// The first signal closes the service properly. The second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	var err error
	switch {
	case *tools:
		err = newTools().Serve(context.Background(), &stdio.Server{}) // until the service closes the pipe
	case *address != "":
		err = serve(ctx, *address, slog.Default())
	default:
		err = play(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs the service until ctx ends, or its supervisor gives up.
func serve(ctx context.Context, address string, log *slog.Logger) error {
	command, err := toolsCommand()
	if err != nil {
		return err
	}
	command.Stderr = os.Stderr
	s, err := start(ctx, command, address, log)
	if err != nil {
		return err
	}
	log.Info("serving", "url", s.web.url())
	if err := s.tree.Wait(ctx); ctx.Err() == nil {
		return err
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.tree.Close(closing)
}

// toolsCommand returns the command that starts this program as the MCP server.
func toolsCommand() (*stdio.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &stdio.Command{Path: self, Args: []string{"-mcp-server"}}, nil
}
