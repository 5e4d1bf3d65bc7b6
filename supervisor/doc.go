// Package supervisor starts, watches, restarts and stops what a program runs,
// after the model of Erlang/OTP.
//
// A child is a function that runs until its context ends. The supervisor gives
// it one goroutine, runs it again when it fails, as its restart type says, and
// stops it on request. A panic is a failure of that child; the process lives.
// When children fail too often the supervisor gives up, stops all of them, and
// says which one it was. A supervisor can be the child of another, which then
// begins it anew: so what fails is contained by the smallest part of the tree
// that can do without it.
//
// # The contract of a child
//
//   - Run works until its context ends, then cleans up and returns. What it
//     returns because of that (nil, context.Canceled, ErrStopped) is no failure.
//   - Before it returns, it waits for every goroutine it has started.
//   - It can be run again: it keeps nothing of a Run that has failed, or knows
//     how to go on from there.
//   - Init is for what others depend on: the children after it are started when
//     it has returned.
//   - Go cannot end a goroutine from outside. A child that ignores the end of
//     its context is reported by name, and left behind, after its Shutdown. It
//     is not run again before it is gone.
//
// # What is guaranteed
//
//   - A failed child runs again at once: the supervisor adds no delay.
//   - Children are stopped in reverse order of their start, one after another,
//     and those that a Strategy restarts are started in order again.
//   - Stop returns when every child's goroutine is gone or named; Close first
//     lets the whole tree finish what it has begun, within one deadline.
//   - A connection costs one goroutine in all, and its backoff is its own.
//   - A supervisor has no goroutine of its own; as a child of another it has one.
//
// A Report is the tree at one moment, as data and, by its String, for people:
//
//	supervisor app at 2026-11-21 12:05:03: rest_for_one, running since 12:00:00, 2 children: 2 running; 0 restarts in the last 5s, of which it gives up on the 4th
//	├─ config: permanent worker, running since 12:00:00
//	└─ pool: permanent one_for_one supervisor, running since 12:00:00; 2 children: 1 backoff, 1 ready; 0 restarts …
//	   ├─ weather: transient connection, ready since 12:04:07 over link 3, last failure: link broken: exit status 1
//	   └─ search: transient connection, backoff since 12:05:01, attempt 8 at 12:05:29, last failure: open failed: connection refused
//
// A link that is lost is the Conn's business, and no restart.
//
// Starting, restarting and stopping one child takes constant time, however
// many there are; restarting a group takes time in proportion to the supervisor. What happens is decided by a pure state machine, which is
// searched exhaustively; see ADR-0002.
package supervisor
