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

// What a link holds is bounded. Outbound it accepts no frame while either bound
// of the queue is reached, so that the last one may go beyond it. Inbound it
// holds one frame and the read-ahead while it has no credit.
const (
	maxFrame       = 16 << 20 // bytes, either way
	maxQueued      = 256      // frames
	maxQueuedBytes = 1 << 20
	readAhead      = 64 << 10 // bytes
)

// A socket is a connection that can say that it sends nothing more, as
// *net.TCPConn and *net.UnixConn can.
type socket interface {
	net.Conn
	CloseWrite() error
}

// A link is one connection. It has three goroutines: one reads, one writes, and
// one waits for both and tells the loss.
type link struct {
	socket   socket
	receiver receiver
	heard    atomic.Pointer[time.Time] // when bytes came in last; nil: never
	gone     chan struct{}             // closed when nothing of the link is left

	mu      sync.Mutex
	changed sync.Cond            // of what follows
	credit  int                  // frames that may be delivered
	queue   []transport.Outbound // the oldest first; each until a byte of it was written
	queued  int                  // bytes in it
	refused bool                 // a frame was, and there has been no room since
	closing bool                 // Close was called: the queue is flushed, and nothing is delivered
	over    error                // why the link has ended, once it has
}

// NewLink takes a connection over.
func NewLink(s socket) transport.Link {
	l := &link{socket: s, gone: make(chan struct{})}
	l.changed.L = &l.mu
	go l.run()
	return l
}

// run is the life of the link: the loss is told when all else has ended.
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
		if o.Tag != 0 { // zero is for what nobody asks after
			loss.Unsent = append(loss.Unsent, o.Tag)
		}
	}
	l.receiver.lose(loss)
}

// end has both goroutines end, for the first reason that there is.
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

// read delivers one frame for one credit. It reads that frame ahead, so that the
// end of the connection is seen without credit too. When the link is closing it
// discards what still comes: a socket that is closed with something unread in
// it resets the connection, and the peer may lose what was flushed to it.
func (l *link) read() error {
	from := bufio.NewReaderSize(heard{l}, readAhead)
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

// takeCredit waits for one credit. It reports false when nothing is to be
// delivered any more.
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

// write sends what is queued until the link is closing and the queue is empty.
// Then it tells the peer that nothing more will come, which asks it to go: its
// own end is what ends the link.
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

// next waits for a frame, and reports false when there will be none.
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

// settle takes the oldest frame out of the queue if a byte of it was sent, and
// reports whether that made room for one that was refused.
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
	for i, b := range o.Frame { // between JSON tokens a newline means nothing; here it would end the frame
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

// Resume implements transport.Link. Main is never lost while the link lives.
func (l *link) Resume(transport.Stream) {}

// End implements transport.Link. There is no stream but Main.
func (l *link) End(transport.Stream) {}

// Close implements transport.Link. Each caller brings its own patience, so that
// a shorter grace shortens a longer one.
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

// Heard implements transport.ActivityRecorder: without it a peer that hangs would not be
// found out, unless conn.Options.Liveness asks for it.
func (l *link) Heard() (last time.Time, ok bool) {
	if heard := l.heard.Load(); heard != nil {
		last = *heard
	}
	return last, true
}

// heard is the socket of a link, to read from.
type heard struct{ *link }

func (h heard) Read(p []byte) (int, error) {
	n, err := h.socket.Read(p)
	if now := time.Now(); n > 0 {
		h.link.heard.Store(&now)
	}
	return n, err
}

// readFrame returns the next line that is not empty, and holds no more of it
// than maxFrame and the reader's buffer.
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
