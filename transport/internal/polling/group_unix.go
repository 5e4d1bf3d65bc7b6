//go:build unix

package polling

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// minStreak is how many messages a connection of a group must have received after its
// first one, and no other connection any, before it polls. With several callers, messages
// arrive on several connections, and the peer needs the processor that polling would take.
const minStreak = 4

// A Group is a number of connections, of which one polls while it alone receives
// anything. The zero value is ready to use.
type Group struct {
	last atomic.Pointer[Reader] // which reader found something last
}

// Conn returns a connection of the group that has all methods of c, if c is a *net.TCPConn.
// Otherwise it returns c.
func (g *Group) Conn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	polled := &conn{TCPConn: tcp, reader: NewReader(raw), writer: NewWriter(raw)}
	polled.reader.group, polled.reader.poller = g, newPoller(runtime.GOMAXPROCS(0), connPolls)
	return polled
}

// A conn is a TCP connection that polls before it waits.
type conn struct {
	*net.TCPConn

	reading sync.Mutex
	reader  *Reader

	writing sync.Mutex
	writer  *Writer
}

func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.reader.Read(p)
	return n, c.failure("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.writer.Write(p)
	if err != nil {
		return n, c.failure("write", err)
	}
	if n == len(p) {
		return n, nil
	}
	rest, err := c.TCPConn.Write(p[n:]) // waits until the peer reads
	return n + rest, err
}

func (c *conn) SetDeadline(t time.Time) error {
	defer c.reader.hasten()
	return c.TCPConn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	defer c.reader.hasten()
	return c.TCPConn.SetReadDeadline(t)
}

// failure returns the error that the same method of net.TCPConn would return.
func (c *conn) failure(op string, err error) error {
	switch err := err.(type) {
	case *net.OpError: // of the syscall.RawConn
		failed := *err
		failed.Op = op
		return &failed
	case syscall.Errno:
		return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
	default: // nil or io.EOF
		return err
	}
}
