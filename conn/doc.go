// Package conn is the actor: one owner, one state machine, one connection.
//
// A [Conn] is a channel to one peer for as long as the program wants it.
// Processes, sockets and sessions come and go underneath; the handle stays
// valid. An initiator (a client) opens links through a transport and opens
// another after a loss; an acceptor (a server) is handed one link and closes
// with it. What comes and goes is an incarnation: one link, one handshake and
// the handlers that run for it, numbered by an epoch.
//
//	starting → initializing → ready
//	    ↑            │          │
//	    └── backoff ←┴──────────┘      any → closing
//
// # What is guaranteed
//
//   - Every call ends exactly once, with a [Cause] and a [Delivery] that say
//     whether the peer answered, and whether it can have executed the request.
//   - A reply is delivered to the call that made its request, or to nobody.
//   - When a link is lost, all of its calls end in the same step; when a
//     stream of it is, the calls of that stream do.
//   - A call ends at the end of its context, whatever the peer does.
//   - Nothing is made again unless [Request.Retries] asks for it, and nothing
//     that may have been executed unless it is Repeatable. A call that names an
//     incarnation is sent in no other.
//   - A handler never delays a reply: handlers run off the loop.
//   - Memory is bounded whatever the peer sends: what a slow handler leaves
//     waiting slows the peer down when that is safe, and is shed by what it
//     means, and counted, when it is not.
//   - A peer that is silent is told from one that is gone.
//   - Of many Conns that share a [Gate] only so many begin at once, and none of
//     them waits long for a server that hangs.
//   - Stop settles every caller at once. After Run has returned, no goroutine
//     of the Conn's own is left; handlers that ignore their context are named.
//
// # How it works
//
// The core (core.go and the files marked pure) is a function from an event and
// a time to effects. It has no goroutine, lock, channel, clock or randomness.
// The shell (loop.go) feeds it, on one goroutine at a time: it takes events
// from the mailbox, arms one timer, performs effects and never blocks. Between
// events that goroutine waits: that of [Conn.Run] for 100 ms, that of
// [Conn.Start] not at all. Then it ends, and the next event gets another. Frames
// are decoded in the link's reading goroutine and results in the caller's.
//
// A link carries one stream or many, each with credit, order and an end of its
// own (ADR-0019). On a byte stream there is only the one; over HTTP each request
// has another. What is said here of a link holds for both.
//
// The package knows JSON-RPC, not MCP: a [Dialect] and a handshake function
// are handed in. See ADR-0001 to ADR-0009, ADR-0015, ADR-0019, ADR-0021 and
// ADR-0023 to ADR-0025, and ADR-0027.
package conn
