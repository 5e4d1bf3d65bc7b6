//go:build unix && !linux

package polling

import "golang.org/x/sys/unix"

// A nowait calls read(2) or write(2) on a file that does not block.
type nowait struct{}

func (*nowait) read(fd uintptr, p []byte) (int, error) { return unix.Read(int(fd), p) }

func (*nowait) write(fd uintptr, p []byte) (int, error) { return unix.Write(int(fd), p) }
