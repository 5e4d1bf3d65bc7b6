// Caller is a server over HTTP that knows who calls it. Sessions belong to their users.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var users = map[string]string{"Bearer a-secret": "ada", "Bearer another": "bob"}

func check(r *http.Request) (streamable.Caller, *streamable.Denial) {
	if who, known := users[r.Header.Get("Authorization")]; known {
		return streamable.NewCaller(who), nil
	}
	return nil, &streamable.Denial{Status: http.StatusUnauthorized, Header: http.Header{"WWW-Authenticate": {"Bearer"}}}
}

func whoami(ctx context.Context, _ struct{}) (string, error) {
	return server.RequestFrom(ctx).Origin.Identity, nil
}

func main() {
	s := server.New(protocol.Implementation{Name: "accounts", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami"}, whoami)
	http.Handle("/mcp", streamable.NewHandler(s, streamable.HandlerOptions{Check: check}))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
