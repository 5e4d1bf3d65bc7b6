// Package supervisor starts, watches, restarts and stops the parts of a program,
// after the model of Erlang/OTP.
//
// Use a supervisor to run the long-lived parts of a program: MCP connections,
// HTTP servers, workers. Clients of package features/client already have one.
//
//	s := supervisor.New(supervisor.Options{Name: "app", Strategy: supervisor.RestForOne})
//	if _, err := s.Connect(ctx, c); err != nil { // c is a *conn.Conn
//		return err
//	}
//	if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "poller", Run: poll}); err != nil {
//		return err
//	}
//	defer s.Close(context.Background())
//	return s.Wait(ctx)
//
// A child is a function, which has a goroutine of its own, a Conn, or another
// supervisor. The supervisor restarts a child when it fails, as its restart type
// says, and stops it on request. A panic in a child is a failure of that child only.
//
// When children fail too often, the supervisor gives up: it stops all of them
// and fails with an error that names the last one. A nested supervisor that
// gives up is a failed child of its parent, which restarts it. So the smallest
// possible part of the tree handles a failure.
//
// # The contract of a child
//
//   - Run works until its context ends, then cleans up and returns. If it then
//     returns nil, context.Canceled or the cause of the context, it has not failed.
//   - Before Run returns, every goroutine that it has started has ended.
//   - Run can be called again: it relies on nothing that a failed Run left behind.
//   - Init prepares what other children depend on: the children after this one
//     start when Init has returned.
//   - Go cannot kill a goroutine. A child that ignores the end of its context is
//     reported as stuck after its Shutdown, and left behind. The supervisor does
//     not run it again before it has returned.
//
// # Guarantees
//
//   - A failed child is restarted immediately.
//   - Children are stopped one after another in reverse start order. Those that a
//     Strategy restarts are then started in start order.
//   - Stop returns when every child has returned or was reported as stuck. Close
//     first lets the whole tree finish its work, within one deadline.
//   - An idle Conn needs no goroutine. A lost link does not count as a restart: the
//     Conn reconnects by itself, after its own backoff.
//   - A root supervisor has no goroutine; a nested one has one.
//   - Starting, restarting and stopping one child takes constant time, however
//     many there are. Restarting a group takes time in proportion to the number
//     of children.
//
// # Reports
//
// Supervisor.Report returns the tree at one moment, as data. Its String method
// prints it:
//
//	supervisor app at 2026-11-21 12:05:03: rest_for_one, running since 12:00:00, 2 children: 2 running; 0 of 3 restarts used in the last 5s
//	├─ config: permanent worker, running since 12:00:00
//	└─ pool: permanent one_for_one supervisor, running since 12:00:00; 2 children: 1 backoff, 1 ready; 0 of 3 restarts used in the last 5s
//	   ├─ weather: transient connection, ready since 12:04:07 over link 3, last failure: link broken: exit status 1
//	   └─ search: transient connection, backoff since 12:05:01, attempt 8 at 12:05:29, last failure: open failed: connection refused
//
// A pure state machine makes all decisions, and a test explores all its states.
// ADR-0002 explains the design; docs/guarantees.md says how to list its guarantees.
package supervisor
