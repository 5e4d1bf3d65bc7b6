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
// CallOptions.WaitForReady, and are called again after a loss when asked to with
// CallOptions.Retries. A method fails with a *conn.CallError, which says how the
// call ended and whether the server can have executed it; a tool's own failure
// is a result with IsError set.
//
// Another server knows nothing of what was done in the session before. A tool
// that depends on that is stateful, and a series of its calls is bound to one
// server session by CallOptions.Epoch:
//
//	series := session.With(client.CallOptions{Epoch: session.Conn().Status().Epoch})
//
// A program that runs many sessions, or one whose server may come later, has
// them run by Client.Start, which gives each a name and waits for no server.
//
// What a server tells unasked goes to Options.OnNotification.
//
// Behind a CallError may be an error of this package: a *CapabilityError for a
// request that was not sent because the server does not offer it, a
// *ResultError for an answer that cannot be read.
package client
