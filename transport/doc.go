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
// facts about itself. Its user finds these interfaces with As, and works without them. A wrapper with a
// method Unwrap keeps all of those that it does not implement itself.
//
//	interface       of           implemented by                         used for
//	Describer       a Transport  stdio.Command, streamable, sse, inmem  names, sessions with one endpoint, a child process, ...: see Traits
//	Checked         a Transport  stdio.Command, streamable, sse         a wrong configuration fails immediately
//	LinkDescriber   a Link       stdio, streamable, sse                 signs of life, how often an idle peer is probed, telemetry: see LinkTraits
//	Flusher         a Link       stdio, inmem                           several frames are sent together
//	Keeper          a Link       streamable's server                    sessions that outlive their process
//	Runner          a Receiver   conn                                   frames and handlers run where they are read
//	Doubter         a Receiver   conn                                   an answer that is no sign of life
//	Reserver        an Exchange  streamable                             large answers are refused before they are encoded
//	Forwarder       an Exchange  streamable, with several nodes         what only another node has
package transport
