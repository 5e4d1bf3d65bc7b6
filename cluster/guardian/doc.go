// Package guardian starts servers that must not outlive a deadline, whatever becomes of the
// program that started them. A cluster starts its exclusive servers so (ADR-0079).
//
// A program calls [Start] first in main, and hands the [Guardian] on:
//
//	func main() {
//		guard := guardian.Start()
//		…
//	}
//
// The program then starts such a server through itself, as two more processes: the outer and
// the inner guardian. The server inherits its standard input, output and error from them, so no
// byte is copied. The inner guardian ends the server, with all processes that it started,
//
//   - at the deadline, which the program renews over a pipe. SIGTERM comes a tenth of the
//     remaining time before, at most a second, and SIGKILL at the deadline;
//   - when the program has ended, even by SIGKILL: SIGTERM at once, SIGKILL a second later;
//   - when the link is closed: SIGTERM after 30 % of the grace, SIGKILL after 70 %;
//   - when the server's own process has ended: SIGKILL at once.
//
// The deadline is a time on a clock of the machine, which a stopped program does not stop. That
// clock also runs while the machine sleeps; a guardian notices within a second of its waking.
//
// On Linux the guardians are subreapers. Both find every descendant of the server, also those
// that have left its process group or session. If one of the two is killed, the other ends the
// server and its descendants. If both are killed at the same time, the kernel kills the
// server's own process, and its descendants see only the end of their input.
//
// On other Unix systems only the process group of the server is ended. If the inner guardian is
// killed there, the server sees only the end of its input when the link is closed. On Windows
// there is no guardian: Start returns nil.
//
// A guardian cannot end what does not descend from the server, such as containers and services
// that it has others start; a process with another user's rights; a process that the kernel
// does not let die. While the guardians are stopped themselves, together with the server, by a
// debugger, a frozen control group or a paused virtual machine, they do nothing. When they
// continue, they end the server at once if the deadline has passed, but the server may continue
// some milliseconds before that.
//
// # Goroutines
//
// In the program, a Link has one besides those of stdio: it follows what the inner guardian reports,
// and ends before Close returns.
package guardian
