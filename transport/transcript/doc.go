// Package transcript shows what passes through a transport, and writes and reads
// it as a text that people can read.
//
// [Tap] wraps a transport and reports every frame and event of its links. A
// [Writer] writes what a tap reports:
//
//	= opened
//	> {"jsonrpc":"2.0","id":1,"method":"tools/list"}
//	< {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}
//	= lost: transport: link closed
//
// [Read] reads it back. A line begins with the sign of what it holds:
//
//   - ">" is a frame that this side sent, and "<" a frame that it received. A long
//     frame continues on the lines below it that begin with a space.
//   - ">!" and "<!" are frames that are not JSON, as a quoted Go string.
//   - "=" is an event: opened, refused (the frame sent last was not accepted), failed
//     (a frame that was accepted did not go out), skipped (a frame that came in was
//     refused), stream lost, ended, lost; the reason follows after a colon.
//   - "#" is a comment. Empty lines mean nothing.
//
// The number of the link stands before the sign of every link but the first, and
// the time since the first line before both, if the writer was asked for it:
//
//	+1.204s 2> {"jsonrpc":"2.0","id":7,"method":"ping"}
package transcript
