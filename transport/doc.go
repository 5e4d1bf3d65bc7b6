// Package transport defines how frames move between two peers. A frame is one JSON-RPC
// message as bytes. The package does not know what frames mean.
//
// Import it to write a transport of your own; examples/transport is a complete one. To
// use a transport, see its subpackages: stdio for child processes, streamable for
// Streamable HTTP, sse for HTTP+SSE, and inmem for connections within a process.
//
// A [Transport] opens a [Link], and the link delivers frames to one [Receiver]. A link
// has one or more streams. A byte stream such as a pipe has only [Main]; a link over
// HTTP has one stream for each exchange (ADR-0019).
//
// Each link keeps these rules:
//
//   - It delivers frames only after Bind, only as far as credit was granted, and never
//     after Lost. Frames of one stream are delivered in order.
//   - Credit, order and loss apply to each stream separately.
//   - Send never blocks. If the queue is full, Send returns ErrBusy, and the link calls
//     Writable later.
//   - The link calls Lost exactly once. Lost says why the link ended, and which accepted
//     frames were certainly not sent.
//   - Close may be called more than once, takes a bounded time, and leaves no goroutine,
//     descriptor or process behind.
//   - A link never retries and never reconnects. Package conn does that.
//
// proptest.LinkContract checks these rules for any implementation. ADR-0014 explains
// them.
//
// # Optional interfaces
//
// A transport, a link, a receiver or an exchange can do more than its interface requires, and report
// facts about itself. Its user finds these interfaces with [As], and works without them: begin without
// them, too, and add one when you miss what it is for. A wrapper with a method Unwrap keeps all of those
// that it does not implement itself.
//
// Of a Transport:
//
//   - [Describer] (stdio.Command, streamable, sse, inmem): a name for people, which sessions have one
//     endpoint and so reconnect together, whether a peer is a child that may first install itself.
//   - [Checked] (stdio.Command, streamable, sse): a wrong configuration fails at once, without I/O.
//
// Of a Link:
//
//   - [LinkDescriber] (stdio, streamable, sse): when bytes last came in, so that a peer that sends slowly
//     is not taken for dead; that an idle peer is probed rarely; what telemetry says of the network.
//   - [Flusher] (stdio, inmem): several frames are sent together, and a link is closed without waiting.
//   - [Keeper] (servers of streamable): a session that outlives its process.
//   - [Detacher] (servers of streamable): a client that is gone loses its connection, and not its session.
//
// Of a Receiver, all of which those of package conn implement:
//
//   - [Runner]: frames are processed, and handlers run, on the goroutine that reads.
//   - [Doubter]: an answer from between the two peers, which is no sign that the other one lives.
//
// Of an Exchange:
//
//   - [Reserver] (streamable): a large answer is refused before it is encoded.
//   - [Forwarder] (streamable, with several nodes): what only another node has.
package transport
