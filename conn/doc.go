// Package conn keeps a JSON-RPC connection to one peer alive.
//
// A [Conn] is a connection that outlives its links: processes, sockets and
// sessions come and go underneath, and the Conn stays valid. An initiator (a
// client, created with [New]) opens links through a transport and opens another
// after a loss. An acceptor (a server, created with [Accept]) is handed one link
// and closes when that is lost.
//
// One link, its handshake and the handlers that run for it are an incarnation.
// Incarnations are numbered by an epoch.
//
//	starting → initializing → ready
//	    ↑            │          │
//	    └── backoff ←┴──────────┘      any → closing
//
// # Guarantees
//
//   - Every call ends exactly once, with a [Cause] and a [Delivery] that say how
//     it ended and whether the peer can have executed the request.
//   - A reply is delivered to the call that made the request, or to nobody.
//   - When a link is lost, all of its calls end at once. When a stream of a link
//     is lost, the calls of that stream end.
//   - A call ends when its context ends, whatever the peer does.
//   - A request is sent again only if [Request.Retries] asks for it, and if the
//     peer may have executed it, only if it is Repeatable.
//   - A handler never delays a reply to another call.
//   - Memory is bounded whatever the peer sends. If a handler is slow, the Conn
//     stops reading where that is safe; otherwise it drops notifications by what
//     they mean, and counts them.
//   - A peer that is silent is told apart from a peer that is gone.
//   - Stop ends every call at once. After Run has returned, no goroutine of the
//     Conn's own is left, and handlers that ignore their context are named.
//
// # How it works
//
// The core is a function from an event and a time to effects. It has no
// goroutine, lock, channel, clock or randomness; its files are marked pure, and
// core.go is the place to begin. The loop (loop.go) is the shell around it: one
// goroutine at a time takes events from a mailbox, steps the core, and performs
// the effects. The loop never blocks and never looks into a frame: frames are
// decoded by the goroutine that reads from the link, and results by the caller. If the
// loop has nothing to do, it works on the goroutine that brings it an event, such as
// that of a caller; otherwise on its own.
// After 100 ms without an event the loop parks: it gives up its goroutine and its
// buffers, and the next event gets new ones.
//
// A link carries one stream or many, each with its own credit, order and end
// (ADR-0019). A byte stream has only one; over HTTP each request has its own.
//
// The package knows JSON-RPC, not MCP: a [Dialect] and a handshake function are
// handed in. See ADR-0001 to ADR-0009, ADR-0015, ADR-0019, ADR-0021, ADR-0023 to
// ADR-0025, ADR-0027, and ADR-0048.
package conn
