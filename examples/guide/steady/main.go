// Steady is an MCP server that finishes its calls before it ends.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// work takes a second.
func work(ctx context.Context, _ struct{}) (string, error) {
	log.Print("working in process ", os.Getpid())
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "done", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := server.New(protocol.Implementation{Name: "steady", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "work", Description: "Works for a second."}, work)
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		log.Fatal(err) // says what had to be cancelled
	}
}
