package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// These limits bound the memory of a link. For output, it accepts no frame while the
// queue has reached one of its limits, so only the last frame may exceed it. For input
// without credit, it holds one frame and the read-ahead.
const (
	maxFrame       = 16 << 20 // bytes, in either direction
	maxQueued      = 256      // frames
	maxQueuedBytes = 1 << 20
	readAhead      = 64 << 10 // bytes
)

// A socket is a connection whose sending side can be closed, such as a *net.TCPConn or
// a *net.UnixConn.
type socket interface {
	net.Conn
	CloseWrite() error
}

// A link is one connection. It has three goroutines: one reads, one writes, and one waits
// for these two and reports the loss.
type link struct {
	socket   socket
	receiver receiver
	lastRead atomic.Pointer[time.Time] // when bytes last came in; nil: none have
	gone     chan struct{}             // closed when the link has ended

	mu      sync.Mutex
	changed sync.Cond            // broadcast when one of the fields below changes
	credit  int                  // how many frames may be delivered
	queue   []transport.Outbound // frames of which no byte was written yet, oldest first
	queued  int                  // how many bytes are in the queue
	refused bool                 // a frame was refused, and there has been no room since
	closing bool                 // Close was called: the queue is written, and nothing more is delivered
	over    error                // why the link has ended; nil while it has not
}

// NewLink returns a link over a connection, which it then owns.
func NewLink(s socket) transport.Link {
	l := &link{socket: s, gone: make(chan struct{})}
	l.changed.L = &l.mu
	go l.run()
	return l
}

// run starts the two other goroutines, and reports the loss when they have ended.
func (l *link) run() {
	defer close(l.gone)
	var both sync.WaitGroup
	both.Go(func() { l.end(l.read()) })
	both.Go(func() {
		if err := l.write(); err != nil {
			l.end(err)
		}
	})
	both.Wait()
	loss := transport.Loss{Reason: l.over}
	for _, o := range l.queue {
		if o.Tag != 0 { // a message without a tag is not reported
			loss.Unsent = append(loss.Unsent, o.Tag)
		}
	}
	l.receiver.lose(loss)
}

// end makes both goroutines end. The first reason counts.
func (l *link) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		reason = transport.ErrClosed
	}
	if l.over == nil {
		l.over = reason
	}
	l.changed.Broadcast()
	l.socket.Close()
}

// read delivers one frame for each credit. It reads a frame before it has credit for it,
// so that it notices the end of the connection even without credit. When the link is
// closing, it reads and discards frames. Otherwise the system would reset the connection
// when the socket is closed, and the peer could lose the last frames.
func (l *link) read() error {
	from := bufio.NewReaderSize(reading{l}, readAhead)
	for {
		frame, err := readFrame(from)
		switch {
		case errors.Is(err, io.EOF):
			return transport.ErrPeerClosed
		case err != nil:
			return fmt.Errorf("tcp: read: %w", err)
		}
		if l.takeCredit() {
			l.receiver.tell(func(to transport.Receiver) { to.Receive(transport.Inbound{Frame: frame}) })
		}
	}
}

// takeCredit waits for one credit. It reports false if no more frames are delivered.
func (l *link) takeCredit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.credit == 0 && !l.closing && l.over == nil {
		l.changed.Wait()
	}
	if l.closing || l.over != nil {
		return false
	}
	l.credit--
	return true
}

// write writes the queue until the link is closing and the queue is empty. Then it closes
// the sending side of the connection. The peer should then close the connection, which
// ends the link.
func (l *link) write() error {
	for {
		frame, ok := l.next()
		if !ok {
			return l.socket.CloseWrite()
		}
		n, err := l.socket.Write(append(frame, '\n'))
		if l.settle(n > 0, len(frame)) {
			l.receiver.tell(transport.Receiver.Writable)
		}
		if err != nil {
			return fmt.Errorf("tcp: write: %w", err)
		}
	}
}

// next waits for a frame. It reports false if there will be no more.
func (l *link) next() (frame []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closing && l.over == nil {
		l.changed.Wait()
	}
	if len(l.queue) == 0 || l.over != nil {
		return nil, false
	}
	return l.queue[0].Frame, true
}

// settle removes the oldest frame from the queue if a byte of it was written. It reports
// whether there is now room for a frame that was refused.
func (l *link) settle(sent bool, size int) (relieved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent {
		l.queue[0] = transport.Outbound{}
		l.queue, l.queued = l.queue[1:], l.queued-size
	}
	relieved = l.refused && !l.isFull()
	l.refused = l.refused && !relieved
	return relieved
}

func (l *link) isFull() bool { return len(l.queue) >= maxQueued || l.queued >= maxQueuedBytes }

// Bind implements transport.Link.
func (l *link) Bind(to transport.Receiver) { l.receiver.bind(to) }

// Send implements transport.Link.
func (l *link) Send(o transport.Outbound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o.Stream != transport.Main:
		return fmt.Errorf("tcp: send on stream %d: %w", o.Stream, transport.ErrNoRoute)
	case len(o.Frame) > maxFrame:
		return &transport.OversizedError{Limit: maxFrame, Size: len(o.Frame)}
	case l.closing || l.over != nil:
		return transport.ErrClosed
	case l.isFull():
		l.refused = true
		return transport.ErrBusy
	}
	for i, b := range o.Frame { // a newline in JSON is only white space, but here it would end the frame
		if b == '\n' {
			o.Frame[i] = ' '
		}
	}
	l.queue, l.queued = append(l.queue, o), l.queued+len(o.Frame)
	l.changed.Broadcast()
	return nil
}

// Grant implements transport.Link.
func (l *link) Grant(stream transport.Stream, frames int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stream == transport.Main {
		l.credit += frames
		l.changed.Broadcast()
	}
}

// Resume implements transport.Link. It does nothing, because the only stream is Main.
func (l *link) Resume(transport.Stream) {}

// End implements transport.Link. It does nothing, because the only stream is Main.
func (l *link) End(transport.Stream) {}

// Close implements transport.Link. Each caller has its own timer, so a call with a
// shorter grace ends the link earlier.
func (l *link) Close(grace time.Duration) error {
	l.mu.Lock()
	l.closing = true
	l.changed.Broadcast()
	l.mu.Unlock()
	patience := time.NewTimer(grace / 10 * 7)
	defer patience.Stop()
	select {
	case <-l.gone:
	case <-patience.C:
		l.end(transport.ErrClosed)
		<-l.gone
	}
	return nil
}

// LinkTraits implements transport.LinkDescriber. Without it, a peer that hangs would be
// noticed only if the program sets conn.Tuning.Liveness.
func (l *link) LinkTraits() transport.LinkTraits {
	traits := transport.LinkTraits{RecordsReads: true}
	if lastRead := l.lastRead.Load(); lastRead != nil {
		traits.LastRead = *lastRead
	}
	return traits
}

// reading is a reader of a link's socket that stores when bytes came in.
type reading struct{ *link }

func (r reading) Read(p []byte) (int, error) {
	n, err := r.socket.Read(p)
	if now := time.Now(); n > 0 {
		r.link.lastRead.Store(&now)
	}
	return n, err
}

// readFrame returns the next line that is not empty. It holds at most maxFrame bytes and
// the reader's buffer.
func readFrame(from *bufio.Reader) ([]byte, error) {
	var frame []byte
	for {
		part, err := from.ReadSlice('\n')
		frame = append(frame, part...)
		size := len(bytes.TrimSuffix(frame, []byte("\r"))) // a newline may follow
		if err == nil {
			size = len(bytes.TrimRight(frame, "\r\n"))
		}
		switch {
		case size > maxFrame:
			return nil, &transport.OversizedError{Limit: maxFrame, Size: size}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case size > 0:
			return frame[:size], nil
		default:
			frame = nil
		}
	}
}
