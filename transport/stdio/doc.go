// Package stdio carries newline-delimited JSON over standard input and output,
// and over other byte streams. [Command] is the client's side: it starts a child
// process and owns it. [Server] is the side of the process that was started.
// [Streams] is a client over a socket or any other pair of streams.
//
// A frame is one line, unless ContentLength is asked for. The reader removes a trailing carriage return and ignores
// empty lines; an unterminated line at the end of the stream is its last frame.
// The writer sends a newline inside a frame as a space, because in JSON it can
// only be insignificant white space.
//
// Each link holds at most one inbound frame and 64 KiB of read-ahead, and
// outbound 256 frames of together 16 MiB (one frame always fits an empty queue)
// plus one batch of 64 KiB. Without credit it does not read.
//
// See MCP's stdio transport, ADR-0008 and ADR-0014.
package stdio
