// Package stdio carries newline-delimited JSON over standard input and output, and over
// other byte streams.
//
//   - [Command] is a client's transport. It starts a child process and owns it.
//   - [Server] is a server's transport, in the process that was started.
//   - [Streams] is a client's transport over a socket or any other pair of streams.
//
// A client and a server:
//
//	session, err := c.Connect(ctx, &stdio.Command{Path: "weather"})
//	err := s.Serve(ctx, &stdio.Server{})
//
// A frame is one line, unless Framing is ContentLength. The reader removes a trailing
// carriage return and ignores empty lines. An unterminated line at the end of the
// stream is its last frame. The writer replaces a newline inside a frame by a space,
// because in JSON it can only be insignificant white space.
//
// Memory is bounded. For input, each link holds at most one frame and 64 KiB of
// read-ahead, and does not read without credit. For output, it queues at most 256
// frames with 16 MiB together, plus one batch of 64 KiB; a single frame of any
// permitted size always fits into an empty queue.
//
// # Goroutines
//
// A link of a Command has five: two for the pipes, and one each for standard error, the exit of the
// child, and the end of the link; with a Stderr writer, one more. The goroutine that reads lends
// itself to the receiver: a quick handler runs on it, and another goroutine reads on while a slow
// one does (ADR-0055). Links of Server and Streams have three. Close waits for all of them.
//
// See MCP's stdio transport, ADR-0008 and ADR-0014.
package stdio
