// Package transcript records what passes through a transport, as a text that people can
// read.
//
// [Tap] wraps a transport and reports every frame and event of its links. A
// [Writer] writes what a tap reports:
//
//	= opened
//	> {"jsonrpc":"2.0","id":1,"method":"tools/list"}
//	< {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}
//	= lost: transport: link closed
//
// [Read] reads such a text. Each line begins with a sign:
//
//   - ">" is a frame that this side sent, and "<" a frame that it received. A long frame
//     continues on the following lines, which begin with a space.
//   - ">!" and "<!" are frames that are not JSON, as a quoted Go string.
//   - "=" is an event: opened, refused (the link did not accept the frame above), failed
//     (a frame was accepted but not sent), skipped (the link refused an incoming frame),
//     stream lost, ended, or lost. The reason follows after a colon.
//   - "#" is a comment. Empty lines are ignored.
//
// For every link but the first, the number of the link comes before the sign. With
// Options.Times, the time since the first line comes before both:
//
//	+1.204s 2> {"jsonrpc":"2.0","id":7,"method":"ping"}
package transcript
