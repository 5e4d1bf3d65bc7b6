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
// A transport, a link or a receiver can implement more than its interface requires. Its
// user asks for each of these by a type assertion, and works without them.
//
//	of a Transport      implemented by                    used for
//	Checked             stdio.Command, streamable, sse    Connect fails immediately for a wrong configuration
//	Named               stdio.Command, streamable, sse    the name of a session
//	Located             streamable, sse                   sessions with one endpoint reconnect together
//	ProcessStarter      stdio.Command                     a peer that installs itself first gets time for that
//	ArgumentMirror      streamable                        arguments that are repeated in headers
//	NonBlockingOpener   inmem                             opening without another goroutine
//
//	of a Link           implemented by                    used for
//	ActivityRecorder    stdio, streamable, sse (clients)  a peer that sends slowly is not taken for dead
//	RequestPerMessage   streamable, sse (clients)         an idle peer is probed rarely
//	Networked           streamable, sse (both sides)      telemetry: version of HTTP, session id
//	Flusher             stdio, inmem                      several frames are sent together
//	NonBlockingCloser   inmem                             closing without another goroutine
//
//	of a Receiver       called by                         used for
//	Worker              stdio, inmem                      a frame is processed where it is read
//	ServingWorker       stdio                             a handler runs where its request is read
//	StreamWorker        streamable                        as Worker; a request need not wait for credit
//
// The receivers of package conn implement all three. Transcript and fault wrap other
// transports and links. Transcript passes on the first five of transports and the first
// three of links; fault passes on those three of links.
package transport
