package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A client logs in when its server asks for a token, in the middle of Connect. A program for
// a person sets Interact to auth.Loopback(auth.LoopbackOptions{}), and Store to
// auth.NewFiles, so that the login outlasts the program.
func Example() {
	issuer, endpoint, stop := protectedServer()
	defer stop()
	login := auth.New(auth.Options{
		Resource: endpoint,
		Interact: func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
			fmt.Println("somebody logs in for", i.Scopes)
			return authtest.Consent(ctx, i.Start) // in place of a browser
		},
	})
	defer login.Close()

	c := client.New(protocol.Implementation{Name: "program", Version: "1"}, client.Options{})
	defer c.Close(context.Background())
	session, err := c.Connect(context.Background(), &streamable.Client{URL: endpoint, Authorizer: login})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := session.CallTool(context.Background(), &protocol.CallToolParams{Name: "greet"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content[0].(*protocol.TextContent).Text)

	entry, err := login.Status(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the token is", entry.Access, "of the right issuer:", entry.Issuer == issuer)
	// Output:
	// somebody logs in for [read write]
	// hello
	// the token is ••• of the right issuer: true
}

// protectedServer starts an authorization server, and an MCP server that requires its
// tokens.
func protectedServer() (issuer, endpoint string, stop func()) {
	s := server.New(protocol.Implementation{Name: "greeter", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})

	mux := http.NewServeMux()
	host := httptest.NewServer(mux)
	as := authtest.New(host.URL, authtest.Options{Scopes: []string{"read", "write"}})
	mux.Handle("/", as)
	mux.Handle("/mcp", as.Protect(handler))
	return as.Issuer(), as.Resource(), func() {
		_ = handler.Shutdown(context.Background(), nil) // it fails only if its context ends
		_ = s.Close(context.Background())
		host.Close()
	}
}
