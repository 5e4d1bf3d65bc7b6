package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// subprotocol says that the messages are those of MCP.
const subprotocol = "mcp"

const (
	firstBuffer = 512
	readSize    = 32 << 10 // how many bytes of a message one read waits for

	// farewell is how long a peer that has broken the protocol gets to learn why.
	farewell = time.Second
)

// A CloseError is the reason of a lost link when the peer has closed it for a reason of its own. For the statuses 1000 (normal), 1001 (going
// away) and 1005 (none) the reason is transport.ErrPeerClosed instead.
type CloseError struct {
	Status int    // as in RFC 6455, section 7.4; those from 4000 on are the peer's own
	Reason string // in the words of the peer; shortened
}

func (e *CloseError) Error() string {
	text := fmt.Sprintf("websocket: the peer closed the connection with status %d", e.Status)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// A violation is the reason of a link that this side ends because of what its peer does.
type violation struct {
	error
	status ws.StatusCode // which the peer is told
}

func (v *violation) Unwrap() error { return v.error }

// A link is one connection. One goroutine reads, in run, and another writes.
type link struct {
	parts.Single
	maxFrame int               // in bytes
	origin   *transport.Origin // of all messages; nil on a client's link
	share    *account          // what the client of a Handler takes; nil on a client's link
	recv     parts.Receiver
	traffic  traffic
	conn     *ws.Conn      // set by run
	wake     chan struct{} // holds a token that makes the writer look
	stopped  chan struct{} // closed when the reason is set: nothing more is accepted or delivered
	gone     chan struct{} // closed when the loss was reported

	mu     sync.Mutex
	queue  parts.Queue
	reason error       // why the link is over; nil while it is not
	begun  bool        // the loss is reported by run or fail
	late   *time.Timer // aborts after the farewell; nil if the peer has violated nothing
}

func newLink(maxFrame int) *link {
	return &link{maxFrame: maxFrame, wake: make(chan struct{}, 1), stopped: make(chan struct{}), gone: make(chan struct{})}
}

// begin promises a call of run or fail, which then report the loss. It returns false if the link is over already.
func (l *link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = l.reason == nil
	return l.begun
}

// fail ends a link that has got no connection.
func (l *link) fail(reason error) {
	l.end(reason)
	l.lose()
}

// run reads and writes until the link is over, and returns when the loss was reported.
func (l *link) run(conn *ws.Conn) {
	conn.SetReadLimit(-1) // the link has its own
	l.conn = conn
	var writing sync.WaitGroup
	writing.Go(l.write)
	l.end(l.read())
	if !l.isViolated() {
		l.traffic.abort() // so that the writer does not wait for a peer that sends nothing more
	}
	writing.Wait()
	l.lose()
}

// end ends the link. The first reason counts: end reports whether this one is it.
func (l *link) end(reason error) (first bool) {
	l.mu.Lock()
	if l.reason != nil {
		l.mu.Unlock()
		return false
	}
	l.reason = reason
	close(l.stopped)
	begun := l.begun
	if errors.As(reason, new(*violation)) {
		l.late = time.AfterFunc(farewell, l.traffic.abort)
	}
	l.traffic.closes() // what comes in is not delivered any more, so it may take as long as the link has
	l.signal()
	l.mu.Unlock()
	if !begun {
		l.lose()
	}
	return true
}

// isViolated reports whether this side has ended the link because of what its peer does.
func (l *link) isViolated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late != nil
}

// lose reports the loss, when nothing reads or writes any more.
func (l *link) lose() {
	l.mu.Lock()
	loss := transport.Loss{Reason: l.reason, Unsent: l.queue.Tags()}
	for i := range l.queue.Len() {
		l.share.written(l.queue.At(i).Frame)
	}
	l.queue.Drop(l.queue.Len())
	if l.late != nil {
		l.late.Stop()
	}
	l.mu.Unlock()
	var v *violation
	if errors.As(loss.Reason, &v) {
		loss.Reason = v.error
	}
	l.recv.Lose(loss)
	close(l.gone)
}

// signal makes the writer look at the queue and the reason.
func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // the channel has a token already
	}
}

// read delivers one message for each credit, until the link is over, and returns why.
func (l *link) read() error {
	for {
		// Only the header of a message is read before there is credit. Until a message comes, this answers pings, and notices the end.
		kind, message, err := l.conn.Reader(context.Background())
		if err != nil {
			return readError(err)
		}
		err = l.deliver(kind, message)
		switch {
		case err == transport.ErrClosed, errors.As(err, new(*violation)) && !l.end(err):
			return l.discard(message)
		case err != nil:
			return err
		}
	}
}

// deliver delivers a message for credit. It fails with transport.ErrClosed if the link is over before it has what it waits for.
func (l *link) deliver(kind ws.MessageType, message io.Reader) error {
	if kind != ws.MessageText {
		return &violation{errors.New("websocket: the peer sent a binary message, and those of MCP are text"), ws.StatusUnsupportedData}
	}
	if !l.Credit.Take(l.stopped, nil) {
		return transport.ErrClosed
	}
	frame, err := l.readFrame(message)
	if err != nil {
		return err
	}
	in := transport.Inbound{Frame: frame, Origin: l.origin}
	if in.Room, err = l.share.serve(len(frame)); err != nil {
		return err
	}
	l.recv.Tell(func(to transport.Receiver) { to.Receive(in) }) // the loss is reported after the last message
	return nil
}

// discard reads what still comes while the link closes: what is queued is still written, and the peer's close frame is behind what it sends.
func (l *link) discard(message io.Reader) error {
	for {
		if _, err := io.Copy(io.Discard, message); err != nil {
			return readError(err)
		}
		var err error
		if _, message, err = l.conn.Reader(context.Background()); err != nil {
			return readError(err)
		}
	}
}

// readFrame reads a message. It takes memory as the bytes come in, whatever length they were announced with.
func (l *link) readFrame(from io.Reader) ([]byte, error) {
	frame, begun, isLarge := make([]byte, 0, firstBuffer), time.Now(), false
	defer func() {
		l.share.read(isLarge)
		l.traffic.readBy(time.Time{})
	}()
	for {
		if len(frame) == cap(frame) {
			if !isLarge && len(frame) >= web.SmallBody {
				waits := time.Now()
				if err := l.share.awaitPlace(l.stopped); err != nil {
					return nil, err
				}
				isLarge, begun = true, begun.Add(time.Since(waits))
			}
			frame = append(make([]byte, 0, min(2*cap(frame), l.maxFrame+1)), frame...)
		}
		if l.share != nil { // a server may be as slow as it likes with its messages: a client has asked for them
			l.traffic.readBy(begun.Add(web.BodyPatience + time.Duration(len(frame)/web.PieceSize)*time.Second))
		}
		n, err := from.Read(frame[len(frame):min(cap(frame), len(frame)+readSize)])
		frame = frame[:len(frame)+n]
		switch {
		case len(frame) > l.maxFrame:
			return nil, &violation{fmt.Errorf("websocket: %w", &transport.OversizedError{Limit: l.maxFrame, Size: len(frame)}), ws.StatusMessageTooBig}
		case err == io.EOF:
			return frame, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &violation{errors.New("websocket: a message did not arrive in time"), ws.StatusPolicyViolation}
		case err != nil:
			return nil, readError(err)
		}
	}
}

// readError says why nothing more is read.
func readError(err error) error {
	var closed ws.CloseError
	switch {
	case errors.As(err, &closed):
		switch closed.Code {
		case ws.StatusNormalClosure, ws.StatusGoingAway, ws.StatusNoStatusRcvd:
			return transport.ErrPeerClosed
		}
		return &CloseError{Status: int(closed.Code), Reason: web.Printable(closed.Reason, 125)}
	case errors.Is(err, io.EOF):
		return fmt.Errorf("websocket: the connection ended without a close frame: %w", io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("websocket: read: %w", err)
	}
}

// write writes what is queued until the link is over, and then closes the connection.
func (l *link) write() {
	for o, ok := l.next(); ok; o, ok = l.next() {
		if err := l.writeFrame(o.Frame); err != nil {
			l.end(fmt.Errorf("websocket: write: %w", err))
			break
		}
	}
	l.mu.Lock()
	reason := l.reason
	l.mu.Unlock()
	status := ws.StatusNormalClosure
	var v *violation
	switch {
	case errors.As(reason, &v):
		status = v.status
	case reason != transport.ErrClosed:
		l.traffic.abort()
		_ = l.conn.CloseNow() // the link has its reason
		return
	}
	_ = l.conn.Close(status, "") // the link has its reason; the reader reads the answer
	l.traffic.abort()
}

// next waits for a frame. It reports false if nothing more is written. The frame stays in the queue.
func (l *link) next() (o transport.Outbound, ok bool) {
	for {
		l.mu.Lock()
		switch {
		case l.reason != nil && l.reason != transport.ErrClosed:
			l.mu.Unlock()
			return o, false
		case l.queue.Len() > 0:
			o = l.queue.At(0)
			l.mu.Unlock()
			return o, true
		case l.reason != nil:
			l.mu.Unlock()
			return o, false
		}
		l.mu.Unlock()
		<-l.wake
	}
}

// writeFrame writes the oldest frame of the queue. It stays there if no byte of it was written.
func (l *link) writeFrame(frame []byte) error {
	before := l.traffic.written.Load()
	err := l.writeMessage(frame)
	if err != nil && l.traffic.written.Load() == before {
		return err
	}
	l.mu.Lock()
	l.queue.Drop(1)
	l.share.written(frame)
	relieved := l.queue.Relieved()
	l.mu.Unlock()
	if relieved {
		l.recv.Tell(transport.Receiver.Writable)
	}
	return err
}

// writeMessage writes a long message in pieces: pongs get between them, and a client has time for each.
func (l *link) writeMessage(frame []byte) error {
	if len(frame) <= web.WriteSize {
		return l.inTime(func() error { return l.conn.Write(context.Background(), ws.MessageText, frame) })
	}
	message, err := l.conn.Writer(context.Background(), ws.MessageText)
	if err != nil {
		return err
	}
	for piece := range slices.Chunk(frame, web.WriteSize) {
		if err := l.inTime(func() error { _, err := message.Write(piece); return err }); err != nil {
			return err
		}
	}
	return l.inTime(message.Close)
}

// inTime writes, and ends the link if that takes too long.
func (l *link) inTime(write func() error) error {
	if l.share == nil { // a server may be as slow as it likes, unless it sends a ping meanwhile
		return write()
	}
	late := time.AfterFunc(web.WritePatience, func() { // a client may be slow only as far as others have room beside what it leaves unread
		l.end(errors.New("websocket: the client does not read"))
		l.traffic.abort()
	})
	defer late.Stop()
	return write()
}

// Bind implements transport.Link.
func (l *link) Bind(to transport.Receiver) { l.recv.Bind(to) }

// Send implements transport.Link.
func (l *link) Send(o transport.Outbound) error {
	if err := l.Refuses(o, "websocket", l.maxFrame); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return transport.ErrClosed
	}
	if err := l.share.write(o.Frame); err != nil {
		return err
	}
	if !l.queue.Push(o) {
		l.share.written(o.Frame)
		return transport.ErrBusy
	}
	l.signal()
	return nil
}

// Close implements transport.Link. The close frame follows what is queued, and the peer answers it.
func (l *link) Close(grace time.Duration) error {
	l.end(transport.ErrClosed)
	if !web.EndWithin(l.gone, grace, l.traffic.abort) {
		return errors.New("websocket: the connection has not ended")
	}
	return nil
}

// LinkTraits implements transport.LinkDescriber.
func (l *link) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{RecordsReads: true, LastRead: l.traffic.reads.Last(), Network: transport.Network{HTTP: "1.1"}}
}
