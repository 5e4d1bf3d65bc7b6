//go:build unix

package stdio

import (
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A pipeWriter writes to a non-blocking pipe or socket.
type pipeWriter struct {
	file syscall.RawConn
	call func(descriptor uintptr) bool // created once, because each closure would be an allocation

	nowait  nowait
	text    []byte
	written int
	err     error
}

// A pipeReader reads from a non-blocking pipe or socket.
type pipeReader struct {
	file syscall.RawConn
	call func(descriptor uintptr) bool // created once, because each closure would be an allocation

	nowait nowait
	poller poller
	into   []byte
	n      int
	err    error
}

// newDirectReader returns a pipeReader. If the stream is not a file, or may block, it
// returns the stream itself.
func newDirectReader(from io.Reader) io.Reader {
	raw := nonblocking(from)
	if raw == nil {
		return from
	}
	r := &pipeReader{file: raw, poller: newPoller(runtime.NumCPU())}
	r.call = r.readFrom
	return r
}

func (r *pipeReader) Read(p []byte) (int, error) {
	r.into, r.n, r.err = p, 0, nil
	err := r.file.Read(r.call)
	r.into = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, r.err
	case r.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// readFrom returns false to wait until there is something to read. Before that it polls
// for a short time.
func (r *pipeReader) readFrom(descriptor uintptr) bool {
	for {
		n, err := r.nowait.read(descriptor, r.into)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			if !r.poller.again() {
				return false
			}
		default:
			r.poller.found()
			r.n, r.err = max(n, 0), err
			return true
		}
	}
}

// newDirectWriter returns nil for a file that may block, and for a stream that is not a
// file, because the Write method of an unknown type may do more than write.
func newDirectWriter(to io.Writer) directWriter {
	raw := nonblocking(to)
	if raw == nil {
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

// writeTo always returns true, because it waits for nothing.
func (w *pipeWriter) writeTo(descriptor uintptr) bool {
	for {
		n, err := w.nowait.write(descriptor, w.text)
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

// nonblocking returns the connection of a non-blocking file; nil for other streams.
func nonblocking(stream any) syscall.RawConn {
	var f *os.File
	switch stream := stream.(type) {
	case *os.File:
		f = stream
	case *file:
		f = stream.File
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
	return raw
}
