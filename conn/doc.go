// Package conn is the actor: one goroutine, one state machine, one connection.
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
//   - When a link is lost, all of its calls end in the same step.
//   - A call ends at the end of its context, whatever the peer does.
//   - A handler never delays a reply: handlers run off the loop.
//   - Stop settles every caller at once. After Run has returned, no goroutine
//     of the Conn's own is left; handlers that ignore their context are named.
//
// # How it works
//
// The core (core.go and the files marked pure) is a function from an event and
// a time to effects. It has no goroutine, lock, channel, clock or randomness.
// The shell (loop.go) is the one goroutine that feeds it: it takes events from
// the mailbox, watches one timer, performs effects and never blocks. Frames
// are decoded in the link's reading goroutine and results in the caller's.
//
// The package knows JSON-RPC, not MCP: a [Dialect] and a handshake function
// are handed in. See ADR-0001 to ADR-0009.
package conn
