// Accounts is an MCP server over HTTP that knows who calls it.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

type userKey struct{}

// userOf returns the user that authenticate found.
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// authenticate is ordinary net/http middleware. This one uses the token as the name of
// the user. Yours must check the token.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !found {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// whoami returns the value that authenticate put into the context of this request.
func whoami(ctx context.Context, _ struct{}) (string, error) {
	return userOf(ctx), nil
}

// newServer has one tool for everybody, and one that only root can see.
func newServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "accounts", Version: "1.0"}, server.Options{
		Visible: func(ctx context.Context, f server.Feature) bool {
			return f.Name != "shutdown" || userOf(ctx) == "root"
		},
	})
	server.AddTool(s, protocol.Tool{Name: "whoami", Description: "Names the user."}, whoami)
	server.AddTool(s, protocol.Tool{Name: "shutdown", Description: "Stops everything."},
		func(context.Context, struct{}) (string, error) { return "not today", nil })
	return s
}

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve on this `address`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	endpoint := streamable.NewHandler(newServer(), streamable.HandlerOptions{
		Identify: func(r *http.Request) string { return userOf(r.Context()) },
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", authenticate(endpoint))
	if err := endpoint.ListenAndServe(ctx, &http.Server{Addr: *address, Handler: mux}); err != nil {
		log.Fatal(err)
	}
}
