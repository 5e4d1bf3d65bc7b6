//go:build unix && !linux

package stdio

import "golang.org/x/sys/unix"

// A prompt call is read(2) or write(2) of a file that does not block.
type prompt struct{}

func (*prompt) read(fd uintptr, p []byte) (int, error) { return unix.Read(int(fd), p) }

func (*prompt) write(fd uintptr, p []byte) (int, error) { return unix.Write(int(fd), p) }
