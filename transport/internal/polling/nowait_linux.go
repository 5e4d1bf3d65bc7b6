//go:build !race

package polling

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A nowait reads or writes what is possible immediately, and never waits, even if another
// process has made the file blocking. So it need not tell Go's scheduler of the system
// call. If the scheduler is told, it wakes a thread that watches for long calls whenever
// this process was idle before. Pipes support this since Linux 6.4. Where a file does
// not, nowait makes the usual call.
type nowait struct{ unable bool }

func (c *nowait) read(fd uintptr, p []byte) (int, error) {
	if n, errno := c.call(unix.SYS_PREADV2, fd, p); errno != syscall.EOPNOTSUPP {
		return n, errorOf(errno)
	}
	return unix.Read(int(fd), p)
}

func (c *nowait) write(fd uintptr, p []byte) (int, error) {
	if n, errno := c.call(unix.SYS_PWRITEV2, fd, p); errno != syscall.EOPNOTSUPP {
		return n, errorOf(errno)
	}
	return unix.Write(int(fd), p)
}

func (c *nowait) call(number, fd uintptr, p []byte) (int, syscall.Errno) {
	if c.unable || len(p) == 0 {
		return 0, syscall.EOPNOTSUPP
	}
	const here = ^uintptr(0) // an offset of -1: the file's own
	vector := unix.Iovec{Base: &p[0]}
	vector.SetLen(len(p))
	n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&vector)), 1, here, here, unix.RWF_NOWAIT)
	switch errno {
	case 0:
		return int(n), 0
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.EPERM, syscall.ESPIPE: // by the file, the kernel or a sandbox
		c.unable = true
		return 0, syscall.EOPNOTSUPP
	default: // return it, because a socket reports a reset only once
		return 0, errno
	}
}

func errorOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
