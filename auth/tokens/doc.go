// Package tokens protects an MCP server over HTTP with bearer tokens that its operator has given out. A file has a hash of each; ADR-0097 has the rules.
//
//	token, err := tokens.Add("tokens.json", "ada", time.Time{}) // shown once
//	…
//	file, err := tokens.Open("tokens.json")
//	…
//	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{Check: file.Check})
//
// It is for a team that trusts who runs the server. Where users log in themselves, use auth/resource.
//
// # Goroutines
//
// A File has none: it works on the goroutines of the requests that it checks, one of which looks at the file once a second.
package tokens
