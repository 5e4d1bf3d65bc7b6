package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"
)

// handlers returns the functions that make the HTTP endpoints of cmd/peer. Each
// makes a handler for the given revisions, and a function that closes it.
func handlers() map[string]func(revisions []string) (http.Handler, func(context.Context) error) {
	return map[string]func([]string) (http.Handler, func(context.Context) error){
		"bowline": handleBowline,
		"go-sdk":  handleGoSDK,
		"mcp-go":  handleMCPGo,
	}
}

// finishGrace is how long a server that was interrupted waits for its clients. It is longer than
// the five seconds that http.Server.Shutdown waits for the first request of a new connection:
// http.Transport sometimes opens one more than it uses.
const finishGrace = 15 * time.Second

// handle serves streamable HTTP on the port that the environment names, and
// says on standard error where. It ends when it is interrupted, and fails when a
// client still keeps a request open then.
func handle(ctx context.Context, arguments []string) error {
	newHandler, known := handlers()[arguments[0]]
	if !known {
		return fmt.Errorf("%q is none of %v", arguments[0], slices.Sorted(maps.Keys(handlers())))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "peer: serving http://%s/mcp\n", listener.Addr())
	handler, closeHandler := newHandler(arguments[1:])
	server := &http.Server{Handler: handler}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishGrace)
		defer cancel()
		return errors.Join(closeHandler(finishing), server.Shutdown(finishing))
	}
}
