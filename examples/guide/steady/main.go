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

// serve returns after the client has closed the pipe, or after ctx has ended and the
// running calls have finished.
func serve(ctx context.Context, s *server.Server) error {
	stop := context.AfterFunc(ctx, func() {
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			log.Print(err) // says what had to be cancelled
		}
	})
	defer stop()
	return s.Serve(context.WithoutCancel(ctx), &stdio.Server{})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := server.New(protocol.Implementation{Name: "steady", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "work", Description: "Works for a second."}, work)
	if err := serve(ctx, s); err != nil {
		log.Fatal(err)
	}
}
