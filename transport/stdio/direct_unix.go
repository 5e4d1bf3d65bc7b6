//go:build unix

package stdio

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A pipeWriter writes to a pipe or a socket that does not block.
type pipeWriter struct {
	file syscall.RawConn
	call func(descriptor uintptr) bool // made once, since each would be an allocation

	text    []byte
	written int
	err     error
}

// newDirectWriter returns nil for a file that may block, and for what is no file:
// Write of a type that we do not know may do more than to write.
func newDirectWriter(to io.Writer) directWriter {
	var f *os.File
	switch to := to.(type) {
	case *os.File:
		f = to
	case *file:
		f = to.File
	default:
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	var flags int
	if e := raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) }); e != nil || err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	w := &pipeWriter{file: raw}
	w.call = w.writeTo
	return w
}

func (w *pipeWriter) write(text []byte) (n int, err error) {
	w.text, w.written, w.err = text, 0, nil
	err = w.file.Write(w.call)
	w.text = nil
	if err == nil {
		err = w.err
	}
	return w.written, err
}

// writeTo returns true: nothing is waited for.
func (w *pipeWriter) writeTo(descriptor uintptr) bool {
	for {
		n, err := unix.Write(int(descriptor), w.text)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return true
		default:
			w.written, w.err = max(n, 0), err
			return true
		}
	}
}
