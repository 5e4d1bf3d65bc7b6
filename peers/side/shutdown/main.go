// Shutdown is a server over HTTP that lets calls in flight finish when it is told to
// end. Its streams would keep http.Server.Shutdown waiting, so it counts calls itself.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1.0"}, nil)
	var running sync.WaitGroup
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				running.Add(1)
				defer running.Done()
			}
			return next(ctx, method, r)
		}
	})
	http.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	web := &http.Server{Addr: ":8080"}
	ended := make(chan error, 1)
	go func() { ended <- web.ListenAndServe() }()
	select {
	case err := <-ended:
		log.Fatal(err)
	case <-ctx.Done():
	}
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	for session := range s.Sessions() {
		_ = session.Close()
	}
	if err := web.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		log.Fatal(err)
	}
}
