// Package client is an MCP client. Its sessions survive when a server crashes, hangs or
// restarts.
//
//	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
//	session, err := c.Connect(ctx, &stdio.Command{Path: "my-server"})
//	if err != nil { … }
//	defer session.Close(ctx)
//	weather, err := client.Call[Weather](ctx, session, "forecast", Query{City: "Oslo"})
//
// A Session stays valid while servers crash and come back. While there is no server,
// its methods fail immediately. With CallOptions.WaitForReady they wait for a server
// instead, and with CallOptions.Retries they retry a lost call if that is safe. A
// server that comes back has forgotten the session. So the session tells it again which
// log level, subscriptions and change reports the program wants (ADR-0030).
//
// A Session has one method for each request of the specification, in every revision.
// These methods fail with a *CallError, which says how the call ended and whether the
// server may have executed it. Compare it with ErrLost, ErrTimedOut, ErrUnsupported and
// the others by errors.Is. NotExecuted reports whether a retry is safe. If the tool
// itself failed, CallTool returns a result with IsError set, and Call a *ToolError.
//
// # Questions and events
//
// Options.Elicit, ElicitURL, Sample and Roots answer questions of the server. In the
// legacy revisions (up to 2025-11-25) a question is a request from the server. In
// 2026-07-28 it is part of a result. The same functions answer both. Options.OnEvent
// receives what the server reports on its own, and learns when the server was lost and
// when it came back.
//
// # Server sessions
//
// A new server knows nothing of earlier calls. A tool that depends on earlier calls is
// stateful; see Options.ToolModes. Session.Pin binds a series of calls to the present
// server session.
//
// # Many sessions
//
// Client.Start gives a session a name and does not wait for its server. Client.Session
// finds it by that name, Client.Report describes what runs, and Client.Close ends all
// sessions.
//
// # Goroutines
//
// All types are safe for concurrent use. An idle session has no goroutine of its own,
// unless it waits for events (Options.OnEvent, LogLevel, subscriptions). Its transport
// may have some, for instance for the pipes of a child process. Session.Close and
// Client.Close return when all goroutines, timers and child processes of the session are
// gone.
//
// docs/guide/client.md is a guide to this package, and docs/guarantees.md says how to
// list its guarantees.
package client

// The package is the API, and connects the rooms below it:
//
//	internal/restore   what a new server is asked for again, and who tries early after an outage
//	internal/cache     what may be answered without the server
//
// Its files form three floors, and a file uses only those of its own floor and of lower ones. So a feature
// is added on top, and none of the files below has to know it:
//
//	features   connect.go (New, with the table of methods.go), tools.go, list.go, resources.go, tasks.go, skills.go, questions.go
//	a session  call.go and request.go: a call, from top to bottom, and what it sends
//	           incoming.go: what the server sends; queue.go: the events that wait for the program
//	           handshake.go, contact.go: how a server becomes ready; restore.go: a session as internal/restore sees it
//	           session.go, client.go: what lives how long; middleware.go, any_method.go, options.go
//	ground     errors.go, outcomes.go, events.go, notes.go, encoding.go: values, without a session
//
// A session owns its Conn, its restorer, its cache, its queue and its notes on tools, and the supervisor of its Conn
// if Options names none. A Client owns the list of its sessions, and which of them wait for the same endpoint.
//
// A call runs on the goroutine of its caller, all stages of it, and so does the encoding of its frame, again for each
// attempt. The handshake runs on a goroutine of the Conn. Notifications and questions come on goroutines of the Conn, too;
// OnEvent runs on one that exists while events wait, and what is restored on another one. The Conn waits for all of these.
