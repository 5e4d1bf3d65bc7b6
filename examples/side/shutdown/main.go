// Shutdown is a server over HTTP that lets calls in flight finish when it is told to
// end.
package main

import (
	"context"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := server.New(protocol.Implementation{Name: "web", Version: "1.0"}, server.Options{})
	h := streamable.NewHandler(s, streamable.HandlerOptions{})
	http.Handle("/mcp", h)
	if err := h.ListenAndServe(ctx, &http.Server{Addr: ":8080"}); err != nil {
		log.Fatal(err)
	}
}
