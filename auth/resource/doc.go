// Package resource protects an MCP server over HTTP with OAuth: it is the resource server
// of the specification. It checks the access token of every request, tells clients where
// to get one, and hands who calls to the handlers.
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
// A token is taken if one of the issuers made it for this server, if it is in its time, and
// if its scopes suffice. Sessions, tasks and questions belong to the user of the token, so
// that a new token goes on with them. ADR-0046 has the rules.
//
// The package issues no tokens: that is what the authorization server is for.
package resource
