package websocket

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// traffic is the connection below a WebSocket, as its link needs it: coder/websocket does not say whether a byte of a message was written, and
// waits for a peer's close frame however long the grace is.
type traffic struct {
	reads   parts.Reads
	written atomic.Int64 // how many bytes

	mu      sync.Mutex
	socket  io.Closer // nil before the handshake
	control net.Conn  // the same, if it has deadlines
	aborted bool
	closing bool // there is no deadline any more
}

// over sets the connection. It is closed at once after abort.
func (t *traffic) over(socket io.Closer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.socket = socket
	t.control, _ = socket.(net.Conn)
	if t.aborted {
		_ = socket.Close() // the link has its reason
	}
}

// abort closes the connection, which ends all reading and writing.
func (t *traffic) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted = true; t.socket != nil {
		_ = t.socket.Close() // the link has its reason
	}
}

// readBy sets until when what is read must come in; zero: it may take any time.
func (t *traffic) readBy(deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.control != nil && !t.closing {
		_ = t.control.SetReadDeadline(deadline) // a connection that is closed has none
	}
}

// closes lifts the deadline of what is read: after one has passed within a message, coder/websocket reads the rest from the wrong place.
func (t *traffic) closes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing = true; t.control != nil {
		_ = t.control.SetReadDeadline(time.Time{}) // a connection that is closed has none
	}
}

func (t *traffic) read(from io.Reader, p []byte) (n int, err error) {
	if n, err = from.Read(p); n > 0 {
		t.reads.Note()
	}
	return n, err
}

func (t *traffic) write(to io.Writer, p []byte) (n int, err error) {
	n, err = to.Write(p)
	t.written.Add(int64(n))
	return n, err
}

// A socket is the connection of a server.
type socket struct {
	net.Conn
	traffic *traffic
}

func (s *socket) Read(p []byte) (int, error)  { return s.traffic.read(s.Conn, p) }
func (s *socket) Write(p []byte) (int, error) { return s.traffic.write(s.Conn, p) }

// A body is the connection of a client: the body of the response to its handshake.
type body struct {
	io.ReadWriteCloser
	traffic *traffic
}

func (b *body) Read(p []byte) (int, error)  { return b.traffic.read(b.ReadWriteCloser, p) }
func (b *body) Write(p []byte) (int, error) { return b.traffic.write(b.ReadWriteCloser, p) }

// An upgrade is the ResponseWriter of a handshake. It gives traffic the connection.
type upgrade struct {
	http.ResponseWriter
	traffic *traffic
}

// Hijack implements http.Hijacker.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if late, ok := u.ResponseWriter.(interface{ WriteHeaderNow() }); ok { // gin keeps the status until something is written
		late.WriteHeaderNow()
	}
	conn, buffers, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s := &socket{conn, u.traffic}
	buffers.Writer.Reset(s) // net/http has written nothing into it yet
	u.traffic.over(conn)
	return s, buffers, nil
}
