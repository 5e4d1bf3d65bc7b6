// The example embed is a service that answers HTTP requests with the tools of
// an MCP server, its child process. Its README.md says what it shows.
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
	tools := flag.Bool("mcp-server", false, "serve MCP on the standard streams: what the child process does")
	address := flag.String("http", "", "serve HTTP here until interrupted; without it, play the demo")
	flag.Parse()

	// The first signal ends the service in good order, the second ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	var err error
	switch {
	case *tools:
		err = newTools().Serve(context.Background(), &stdio.Server{}) // until the service leaves
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

// serve runs the service until it is to end, or has given up.
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

// toolsCommand starts this very program as the MCP server.
func toolsCommand() (*stdio.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &stdio.Command{Path: self, Args: []string{"-mcp-server"}}, nil
}
