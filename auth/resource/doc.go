// Package resource protects an MCP server over HTTP with OAuth. In the terms of OAuth, it is
// the resource server: it checks the access token of every request, tells clients where to
// get one, and tells handlers who calls.
//
//	guard, err := resource.New(resource.Options{
//		URL:     "https://mcp.example.com/mcp",
//		Issuers: []resource.Issuer{{URL: "https://login.example.com"}},
//	})
//	…
//	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{Check: guard.Check})
//	mux.Handle("/mcp", endpoint)
//	mux.Handle("/.well-known/", guard.Metadata())
//
// A token is accepted if one of the issuers issued it for this server, if it is valid at this
// time, and if its scopes suffice. Sessions, tasks and questions belong to the user, not to
// the token, so a client can continue them with a new token. ADR-0046 has the rules.
//
// # Goroutines
//
// A Guard has none: it works on the goroutines of the requests that it checks.
//
// The package issues no tokens; an authorization server does. docs/guide/protect.md is a guide
// to this package.
package resource
