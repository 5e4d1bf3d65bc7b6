// Chi serves the MCP servers of several tenants behind a chi router, with its middleware and beside its other routes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A site is a router with the handler below it, which the program shuts down.
type site struct {
	http.Handler
	mcp *streamable.Handler
}

// newSite returns a site with a server for each tenant, at /TENANT/mcp, for users with a token.
func newSite(users map[string]string, tenants ...string) *site {
	servers := make(map[string]*server.Server)
	for _, tenant := range tenants {
		servers[tenant] = newServer(tenant)
	}
	mcp := streamable.NewHandler(nil, streamable.HandlerOptions{
		Choose:   func(r *http.Request) transport.Acceptor { return servers[chi.URLParam(r, "tenant")] }, // nil is answered with 404
		Identify: func(r *http.Request) string { return userOf(r.Context()) },
	})
	router := chi.NewRouter()
	router.Use(middleware.RequestID, middleware.Recoverer)
	router.With(middleware.Timeout(5*time.Second), middleware.Compress(5)).Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "well")
	})
	// Not for MCP: Timeout would end streams that stay open, and Compress would keep back what a tool reports meanwhile.
	router.Group(func(router chi.Router) {
		router.Use(middleware.Logger, middleware.Throttle(1000), login(users))
		router.Handle("/{tenant}/mcp", mcp)
	})
	return &site{router, mcp}
}

// newServer returns the server of a tenant.
func newServer(tenant string) *server.Server {
	s := server.New(protocol.Implementation{Name: tenant, Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami", Description: "says who you are"}, func(ctx context.Context, _ struct{}) (string, error) {
		// The context of a call has the values of that of its HTTP request.
		return fmt.Sprintf("%s of %s, request %s", userOf(ctx), tenant, middleware.GetReqID(ctx)), nil
	})
	return s
}

// userKey is the key of the name of a user in a context.
type userKey struct{}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// login is ordinary middleware: it lets users with a token in.
func login(users map[string]string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			user, known := users[token]
			if !known {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		})
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := newSite(map[string]string{"secret": "ada"}, "acme", "initech")
	srv := &http.Server{Addr: "127.0.0.1:8080", Handler: s, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.ListenAndServe() }()
	select {
	case err := <-ended:
		log.Fatal(err)
	case <-ctx.Done():
	}
	if err := s.mcp.Shutdown(context.Background(), srv); err != nil { // calls that run may finish
		log.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
