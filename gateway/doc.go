// Package gateway serves all servers of an mcp.json file at one endpoint.
//
//	g := gateway.New(gateway.Options{})
//	defer g.Close(ctx)
//	changes, err := g.Apply(ctx, file)
//	http.Handle("/mcp", streamable.NewHandler(g.Server(), streamable.HandlerOptions{}))
//
// Clients and servers may be of any revision; each connection uses its own, and no client notices those of the
// servers behind. A tool is called <server>__<tool>, a prompt likewise; resources keep their URIs.
//
// Each server has one supervised session (package mcpjson/sessions), which all clients share, unless its entry gives each user or each client
// one of its own. A server that dies is started
// again, and its tools stay in the list meanwhile: a call wakes it, waits for ten seconds at most, and then says what is wrong with the
// server and whether the call may have been executed. A question of a server goes to the client whose call it belongs to,
// or to nobody.
//
// # Goroutines
//
// A Gateway has a timer for announcements, a goroutine that finds servers which nobody uses, one for each that is being ended, and one while
// somebody looks at it (Changed). Requests of clients are served on the goroutines of package server; who chooses a log level
// has one for each server meanwhile. Options.Enrich has one for each of its calls, at most 64. Lists are read again on those on which sessions report their events. Close waits for
// all of them.
//
// See docs/adr/0088-the-gateway.md and docs/guide/up.md.
package gateway
