//go:build unix && (!linux || race)

package polling

import "syscall"

// A nowait calls read(2) or write(2) on a file that does not block. Package syscall tells
// the race detector that what was read comes after what was written. Without that, the
// detector would report races between two ends of a connection in one program.
type nowait struct{}

func (*nowait) read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func (*nowait) write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
