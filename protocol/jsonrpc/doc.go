// Package jsonrpc encodes and decodes JSON-RPC 2.0 messages. It does not send or receive
// them: it has no goroutine, no I/O and no clock. All functions are safe for concurrent
// use.
//
// A frame is one JSON text without its framing: a line without its newline, an HTTP body,
// or the data of an event. [Decode] accepts exactly one request, notification, result or
// error. [DecodeBatch] also accepts an array of them. Both trust nothing in a frame, and
// check these rules:
//
//   - The frame is valid UTF-8, and one valid JSON text with nothing after it.
//   - The depth of nesting is limited. It is checked before anything recurses.
//   - Member names are case-sensitive. Unknown members are ignored. No known member of a
//     message or of an error object may be repeated.
//   - An id is a string or an exact integer, and keeps its type and value.
//   - Absent and null are different, except for params and for the id of an error.
//
// Decoding takes time in proportion to the length of the frame, and allocates memory only
// for what the frame contains.
//
// Params, results and error data are slices of the frame, not copies. So a [Message]
// keeps its frame in memory, and you must not modify the frame while you use the Message.
// The package does not check what is inside of them, not even for repeated member names.
//
// See https://www.jsonrpc.org/specification, docs/adr/0016-json.md for the
// choice of the JSON library and docs/adr/0017-jsonrpc-grammar.md for the
// choices the specification leaves open.
package jsonrpc
