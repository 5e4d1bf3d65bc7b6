// Package jsonrpc reads and writes JSON-RPC 2.0 messages: what one frame says,
// and nothing about how frames travel. It holds values only: no goroutine, no
// I/O, no clock. Every function may be called from any goroutine.
//
// A frame is one JSON text without its framing (a line without its newline, a
// body, an event's data). [Decode] accepts exactly one request, notification,
// result or error; [DecodeBatch] also accepts an array of them. Everything in a
// frame is taken to be hostile until checked:
//
//   - The frame is valid UTF-8 and one valid JSON text, with nothing after it.
//   - Nesting is bounded before anything recurses.
//   - Member names are case-sensitive. Members this package does not know are
//     ignored; a member it knows may not be repeated, nor may those of an error
//     object.
//   - An id is a string or an exact integer, and keeps its type and value.
//   - Absent and null are told apart, but for params and the id of an error.
//
// Decoding is linear in the length of the frame, and allocates only what the
// frame holds, never what it claims.
//
// Params, results and error data are handed on as the bytes of the frame
// itself. They are not copied: a [Message] keeps its frame alive, and the frame
// must not be modified while the Message is in use. What is inside them,
// repeated member names included, is for their owner to judge.
//
// See https://www.jsonrpc.org/specification, docs/adr/0016-json.md for the
// choice of the JSON library and docs/adr/0017-jsonrpc-grammar.md for the
// choices the specification leaves open.
package jsonrpc
