// Package client is an MCP client: sessions with servers that survive the
// death of what carries them.
//
//	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
//	session, err := c.Connect(ctx, &stdio.Command{Path: "my-server"})
//	if err != nil { … }
//	defer session.Close(ctx)
//	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "echo", Arguments: args})
//
// A Session stays valid while servers crash and come back: its methods fail
// fast while there is no server, or wait for one when asked to with
// CallOptions.WaitForReady. A method fails with a *conn.CallError, which says
// how the call ended and whether the server can have executed it; a tool's own
// failure is a result with IsError set.
//
// Behind a CallError may be an error of this package: a *CapabilityError for a
// request that was not sent because the server does not offer it, a
// *ResultError for an answer that cannot be read.
package client
