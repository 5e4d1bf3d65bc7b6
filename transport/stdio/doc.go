// Package stdio carries newline-delimited JSON over standard input and output:
// [Command] is the client's side and owns a child process, [Server] is the
// server's side and is owned by one.
//
// A frame is one line. A trailing carriage return is trimmed and an empty line
// ignored; what is left unterminated at the end of the stream is its last
// frame. A newline inside an outbound frame, which JSON allows only where it
// means nothing, is sent as a space.
//
// Both sides hold, per link, at most one frame being read and 64 KiB of
// read-ahead, and outbound 256 frames of together 16 MiB (one frame always
// fits an empty queue) and a 64 KiB batch. Without credit nothing is read.
//
// See MCP's stdio transport, ADR-0008 and ADR-0014.
package stdio
