//go:build unix

package stdio

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport/internal/polling"
)

// newDirectReader returns a reader that polls before it waits. If the stream is not a file,
// or may block, it returns the stream itself.
func newDirectReader(from io.Reader) io.Reader {
	raw := nonblocking(from)
	if raw == nil {
		return from
	}
	return polling.NewReader(raw)
}

// newDirectWriter returns nil for a file that may block, and for a stream that is not a
// file, because the Write method of an unknown type may do more than write.
func newDirectWriter(to io.Writer) directWriter {
	raw := nonblocking(to)
	if raw == nil {
		return nil
	}
	return polling.NewWriter(raw)
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
	returns := false
	_ = raw.Control(func(fd uintptr) { // a closed file has no flags
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		returns = err == nil && flags&unix.O_NONBLOCK != 0
	})
	if !returns {
		return nil
	}
	return raw
}
