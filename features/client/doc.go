// Package client is an MCP client: sessions with servers that survive the death of
// whatever carries them.
//
//	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
//	session, err := c.Connect(ctx, &stdio.Command{Path: "my-server"})
//	if err != nil { … }
//	defer session.Close(ctx)
//	weather, err := client.Call[Weather](ctx, session, "forecast", Query{City: "Oslo"})
//
// A Session stays valid while servers crash and come back. While there is no server
// its methods fail at once, or wait for one with CallOptions.WaitForReady. With
// CallOptions.Retries they call again after a loss, if that is safe. After a loss the
// session asks the new server for everything that it had asked the one before: the
// log level, subscriptions, and reports of changes (ADR-0030).
//
// A Session has one method for each request of the specification, in every revision.
// They fail with a *CallError, which says how the call ended and whether the server
// can have executed it: compare it with ErrLost, ErrTimedOut, ErrUnsupported and the
// others, and ask NotExecuted whether the call may be made again. If a tool itself
// failed, CallTool returns a result with IsError set, and Call a *ToolError.
//
// # The server asks and tells
//
// Options.Elicit, ElicitURL, Sample and Roots answer questions of the server. In the
// legacy revisions these are requests of the server, in 2026-07-28 they are part of a
// result; the same functions answer both. Options.OnEvent receives what the server
// says without being asked, and learns when it was lost and replaced.
//
// # Server sessions
//
// A new server knows nothing of what was done with the one before. A tool that depends
// on that is stateful, see Options.ToolModes. Session.Pin binds a series of calls to the
// server session that is there now.
//
// # Many sessions
//
// Client.Start gives a session a name and does not wait for its server. Client.Session
// finds it again, Client.Report prints what runs, and Client.Close ends all sessions.
package client
