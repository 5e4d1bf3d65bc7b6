//go:build unix

package polling

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// minStreak is how many messages a connection of a group must have received after its
// first one, and no other connection any, before it polls. With several callers, messages
// arrive on several connections, and the peer needs the processor that polling would take.
// What counts as a message is what a read had to wait or poll for.
const minStreak = 4

// aloneFor is for how long no other connection of a group must have received anything before
// one polls. While it polls, a message for another waits for up to longestUnwaited.
const aloneFor = 100 * time.Millisecond

// A Group is a number of connections, of which one polls while it alone receives
// anything. The zero value is ready to use.
type Group struct {
	last atomic.Pointer[Reader] // which reader found something last
}

// Conn returns a connection of the group that has all methods of c, if c is a *net.TCPConn,
// and a method NetConn that returns c. Otherwise it returns c.
func (g *Group) Conn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	return &conn{TCPConn: tcp, reader: newReader(raw, g, connPolls), writer: NewWriter(raw)}
}

// Join makes the new connections of a pool those of the group. It changes nothing else, and
// nothing at all if the pool has a Dial, which net/http prefers to the standard dialer.
func (g *Group) Join(pool *http.Transport) {
	dial := pool.DialContext
	switch {
	case dial == nil && pool.Dial != nil: //nolint:staticcheck // a program may still use it
		return
	case dial == nil:
		dial = new(net.Dialer).DialContext
		if pool.TLSClientConfig == nil && pool.DialTLS == nil && pool.DialTLSContext == nil { //nolint:staticcheck // as above
			pool.ForceAttemptHTTP2 = true // net/http does so itself for pools without all these, but not for those with a DialContext
		}
	}
	pool.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return g.Conn(c), nil
	}
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
	if err != nil {
		err = c.failure("read", err)
	}
	return n, err
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

// NetConn returns the *net.TCPConn, as tls.Conn does.
func (c *conn) NetConn() net.Conn { return c.TCPConn }

func (c *conn) Close() error {
	c.reader.hasten()
	return c.TCPConn.Close()
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
	var raw *net.OpError // of the syscall.RawConn
	var errno syscall.Errno
	switch {
	case errors.As(err, &raw):
		failed := *raw
		failed.Op = op
		return &failed
	case errors.As(err, &errno):
		return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
	default: // nil or io.EOF
		return err
	}
}
