//go:build unix

package stdio

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A file is a duplicate of a descriptor that a link owns. It gives reads and
// writes of a pipe or socket deadlines, and a write to a closed pipe returns an
// error instead of raising SIGPIPE, as it would on descriptor 1.
type file struct {
	*os.File
	original *os.File
	standard bool // the original is a standard stream of the process
	unblock  bool // the original was blocking, and must be again
}

func ownFile(original *os.File) (*file, error) {
	info, err := original.Stat()
	if err != nil {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	f := &file{original: original, standard: isStandard(original)}
	descriptor, err := f.control(func(fd uintptr) (int, error) {
		return unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	})
	if err != nil {
		return nil, fmt.Errorf("stdio: duplicate %s: %w", original.Name(), err)
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		f.unblock = makeNonblocking(descriptor)
	}
	f.File = os.NewFile(uintptr(descriptor), original.Name())
	return f, nil
}

// control calls a function with the descriptor of the original. os.File.Fd would
// make it blocking.
func (f *file) control(call func(fd uintptr) (int, error)) (result int, err error) {
	raw, err := f.original.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { result, err = call(fd) }); e != nil {
		return 0, e
	}
	return result, err
}

// makeNonblocking reports whether the descriptor was blocking.
func makeNonblocking(descriptor int) bool {
	flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_NONBLOCK == 0 && unix.SetNonblock(descriptor, true) == nil
}

// Close closes the duplicate and the original. A standard stream of the process
// stays open and gets its blocking mode back.
func (f *file) Close() error {
	err := f.File.Close()
	if !f.standard {
		return errors.Join(err, f.original.Close())
	}
	if f.unblock {
		_, e := f.control(func(fd uintptr) (int, error) { return 0, unix.SetNonblock(int(fd), false) })
		err = errors.Join(err, e)
	}
	return err
}
