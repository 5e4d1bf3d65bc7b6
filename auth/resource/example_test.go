package resource_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An endpoint serves only requests with a token for it. The denial of a request without a
// token says where to get one. The denial of a token without a scope names that scope.
func Example() {
	const endpoint = "https://mcp.example.com/mcp"
	as := authtest.New("https://login.example.com", authtest.Options{Resource: endpoint})
	guard, err := resource.New(resource.Options{
		URL:     endpoint,
		Issuers: []resource.Issuer{{URL: as.Issuer()}},
		Needs: func(op streamable.Operation) []string {
			if op.Method == protocol.MethodCallTool {
				return []string{"write"}
			}
			return nil
		},
		HTTP: as.Client(), // without a network; most programs leave it nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "hello " + resource.PrincipalFrom(ctx).Subject, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", streamable.NewHandler(s, streamable.HandlerOptions{Check: guard.Check}))
	mux.Handle("/.well-known/", guard.Metadata()) // tells clients where to get a token

	for _, token := range []string{"", as.Issue("ada", "read"), as.Issue("ada", "read write")} {
		r := httptest.NewRequest(http.MethodPost, endpoint, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet",`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": protocol.Latest, "Mcp-Method": "tools/call", "Mcp-Name": "greet",
		} {
			r.Header.Set(name, value)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			fmt.Println(w.Code, strings.Contains(w.Body.String(), "hello ada"))
		} else {
			fmt.Println(w.Code, w.Header().Get("WWW-Authenticate"))
		}
	}
	// Output:
	// 401 Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
	// 403 Bearer error="insufficient_scope", error_description="the operation needs more scopes", resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp", scope="write"
	// 200 true
}
