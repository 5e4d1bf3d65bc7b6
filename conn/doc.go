// Package conn keeps a JSON-RPC connection to one peer alive.
//
// Most programs use packages features/client and features/server, which are built
// on this one. Use conn itself to speak a JSON-RPC protocol other than MCP.
//
// A [Conn] is a handle that stays valid while links come and go. A link is one
// process, socket or session. There are two kinds of Conn:
//
//   - An initiator (a client, created with [New]) opens a link through a transport.
//     When the link is lost, it opens another one after a delay.
//   - An acceptor (a server, created with [Accept]) is given one link, and closes
//     when that link is lost.
//
// This client calls a server that is a child process:
//
//	c := conn.New(&stdio.Command{Path: "server"}, conn.Options{Name: "server"})
//	go c.Run(ctx) // until ctx ends, or Stop or Close is called
//	result, err := c.Call(ctx, conn.Request{Method: "add", Params: params, WaitForReady: true})
//	if conn.NotExecuted(err) {
//		// the server has not executed the request: it is safe to call again
//	}
//
// An incarnation is the time in which a Conn uses one link: the handshake, and all
// handlers that run for that link. Its number is the epoch; an attempt that opens no
// link has a number, too. A Conn moves through these states:
//
//	starting → initializing → ready
//	    ↑            │          │
//	    └── backoff ←┴──────────┘      any → closing
//
// # Guarantees
//
//   - Every call ends exactly once. Its [Cause] says how it ended, and its
//     [Delivery] says whether the peer may have executed the request.
//   - A reply is delivered to the call that made the request, or to nobody.
//   - When a link is lost, all its calls end immediately. When one stream of a link
//     is lost, only the calls of that stream end.
//   - A call ends when its context ends, whatever the peer does.
//   - A request is retried only if [Request.Retries] allows it. If the peer may have
//     executed it, it must also be Repeatable.
//   - A handler never delays a reply to another call.
//   - Memory is bounded whatever the peer sends. If a handler is slow, the Conn stops
//     reading where that is safe. Otherwise it drops notifications and counts them.
//     It first drops those that newer ones replace.
//   - An initiator detects a peer that is silent although its link is still open, as
//     [Tuning.Liveness] says.
//   - Stop ends every call immediately. When Run has returned, none of the Conn's
//     goroutines is left, and an error names the handlers that ignore their context.
//
// docs/guarantees.md says how to list the guarantees with the tests that check them.
//
// # Goroutines
//
// A Conn has at most one goroutine of its own, and none when it has been idle for 100 to
// 120 ms. Handshakes and handlers take further goroutines while they need them. Over
// standard input, a quick handler runs on the goroutine that reads (ADR-0055). When the
// Conn ends, Run waits for all of them. It waits for handlers of requests, handlers of
// notifications, functions of Go and hooks one after the other, for at most twice
// Options.StopGrace each. The methods of a Conn may be called from any goroutine.
//
// # How it works
//
// The core is a function from an event and a time to effects. It has no goroutine,
// lock, channel, clock or randomness. Its files are marked pure; begin reading in
// core.go.
//
// The loop (loop.go) surrounds the core. One goroutine at a time takes events from a
// mailbox, passes them to the core, and performs the effects. If the loop is idle, it
// borrows the goroutine that brings an event, such as that of a caller. The loop never
// blocks and never decodes a frame: the goroutine that reads from the link decodes
// frames, and the caller decodes results. After 100 to 120 ms without an event, the loop
// gives up its goroutine and its buffers.
//
// What a Conn keeps from one loop to the next is its record (record.go). The loop knows its
// Conn only as a handle (request.go), so the files of the loop can be read without those of
// calls, which stand above them (ADR-0093).
//
// A link carries one stream or many, each with its own credit, order and end
// (ADR-0019). A byte stream has only one. Over HTTP each request has its own.
//
// The package knows JSON-RPC, but not MCP: a [Dialect] and a handshake function teach
// it the protocol above. See ADR-0001 to ADR-0009, ADR-0015, ADR-0019, ADR-0021,
// ADR-0023 to ADR-0025, ADR-0027, ADR-0048, ADR-0050, ADR-0055, and ADR-0093.
package conn
