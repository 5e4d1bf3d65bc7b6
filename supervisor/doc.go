// Package supervisor starts, watches, restarts and stops what a program runs,
// after the model of Erlang/OTP.
//
// A child is a function that runs until its context ends. The supervisor gives
// it one goroutine, runs it again when it fails, as its restart policy says,
// and stops it on request. A panic is a failure of that child; the process
// lives. When children fail too often the supervisor gives up, stops all of
// them, and says which one it was.
//
// # The contract of a child
//
//   - Run works until its context ends, then cleans up and returns. What it
//     returns because of that (nil, context.Canceled, ErrStopped) is no failure.
//   - Before it returns, it waits for every goroutine it has started.
//   - It can be run again: it keeps nothing of a Run that has failed, or knows
//     how to go on from there.
//   - Go cannot end a goroutine from outside. A child that ignores the end of
//     its context is reported by name, and left behind, after its Shutdown.
//
// # What is guaranteed
//
//   - A failed child runs again at once: the supervisor adds no delay.
//   - Children are stopped in reverse order of their start, one after another.
//   - Stop returns when every child's goroutine is gone or named.
//   - A connection costs one goroutine in all, and its backoff is its own.
//
// Starting, restarting and stopping one child takes constant time, however
// many there are. See ADR-0002.
package supervisor
