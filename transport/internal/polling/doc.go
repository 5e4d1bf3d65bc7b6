// Package polling reads and writes pipes and sockets without waking other threads: it
// tells Go's scheduler of no system call that cannot wait, and a Reader tries again
// before it waits for the operating system (ADR-0051, ADR-0065).
//
// # Goroutines
//
// The package starts none: a Reader polls on the goroutine that reads.
package polling
