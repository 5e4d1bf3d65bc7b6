// Package transport says how frames move between two peers, with credit-based
// flow control, and nothing about what the frames mean.
//
// A [Transport] opens a [Link]; a link is bound to one [Receiver]. What the
// link guarantees is said at each method, decided in ADR-0014, and checked for
// any implementation by proptest.LinkContract:
//
//   - It delivers only after Bind, only against credit, in order per stream,
//     and never after Lost.
//   - Credit, order and loss are per stream. A byte stream is one, Main; a link
//     over HTTP has one for each exchange (ADR-0019).
//   - Send never blocks. A full queue says ErrBusy, and Writable follows.
//   - Lost is called exactly once and says why, and which accepted messages
//     surely never left.
//   - Close is idempotent, bounded in time, and leaves nothing behind.
//
// Retry, backoff and reconnection are never in a transport.
package transport
