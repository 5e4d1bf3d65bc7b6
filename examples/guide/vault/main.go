// Vault is an MCP server over HTTP for those who log in.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// needs returns the scopes that an operation requires. Everything but tool calls requires
// only a valid token.
func needs(op streamable.Operation) []string {
	if op.Method != protocol.MethodCallTool {
		return nil
	}
	if op.Name() == "transfer" {
		return []string{"accounts:read", "accounts:write"}
	}
	return []string{"accounts:read"}
}

// newGuard accepts tokens that one authorization server issued for one URL.
func newGuard(issuer, url string) (*resource.Guard, error) {
	return resource.New(resource.Options{
		URL:     url,
		Issuers: []resource.Issuer{{URL: issuer}},
		Scopes:  []string{"accounts:read"}, // the scopes that clients ask for first
		Needs:   needs,
	})
}

// Transfer is what transfer takes.
type Transfer struct {
	To    string `json:"to"`
	Cents int    `json:"cents"`
}

// transfer finds out who calls.
func transfer(ctx context.Context, in Transfer) (string, error) {
	who := resource.PrincipalFrom(ctx)
	return fmt.Sprintf("%s sends %d cents to %s", who.Subject, in.Cents, in.To), nil
}

// recorded logs who asked for what, and how it ended.
func recorded(_ context.Context, r server.Record) {
	log.Println(r.Origin.Identity, r.Origin.RemoteAddr, r.Method, r.Name, r.ID, r.Outcome, r.Err)
}

// newServer lists to each client only the tools that its scopes allow.
func newServer(guard *resource.Guard) *server.Server {
	s := server.New(protocol.Implementation{Name: "vault", Version: "1.0"}, server.Options{Visible: guard.Visible, Audit: recorded})
	server.AddTool(s, protocol.Tool{Name: "balance", Description: "Tells the balance of the user's account."},
		func(context.Context, struct{}) (int, error) { return 4200, nil })
	server.AddTool(s, protocol.Tool{Name: "transfer", Description: "Sends money."}, transfer)
	return s
}

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve on this `address`")
	url := flag.String("url", "http://127.0.0.1:8080/mcp", "the `URL` under which clients know the server")
	issuer := flag.String("issuer", "https://login.example.com", "the `URL` of the authorization server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	guard, err := newGuard(*issuer, *url)
	if err != nil {
		log.Fatal(err)
	}
	endpoint := streamable.NewHandler(newServer(guard), streamable.HandlerOptions{Check: guard.Check})
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	mux.Handle("/.well-known/", guard.Metadata())
	if err := endpoint.ListenAndServe(ctx, &http.Server{Addr: *address, Handler: mux}); err != nil {
		log.Fatal(err)
	}
}
