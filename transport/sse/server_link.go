package sse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxWaiting is how many POSTs of one session may wait for each other.
const maxWaiting = 1024

// interrupted is a deadline that has passed.
var interrupted = time.Unix(0, 1)

var sessionNotFound = &refusal{status: http.StatusNotFound, text: "session not found"}

// A serverLink is the link of one session. It has no goroutine of its own: the one of
// the GET request writes the stream, and those of the POSTs deliver messages.
type serverLink struct {
	parts.Single

	id, identity string
	acceptor     transport.Acceptor // that serves the session
	http         string             // the version of HTTP of the GET request
	maxFrame     int                // in bytes
	unread       *web.Unread
	client       share.Client // whose share of unread it is
	w            http.ResponseWriter
	control      *http.ResponseController

	recv    parts.Receiver
	turn    chan struct{} // holds a token while a POST is being delivered
	wake    chan struct{} // holds a token that makes the goroutine of the GET request check for frames
	closing chan struct{} // closed when the reason is set
	unused  chan struct{} // closed when the reason is set and no request uses the link
	gone    chan struct{} // closed when everything has ended

	mu                 sync.Mutex
	queue              parts.Queue
	small, large       int   // the bytes of unread that are taken for the queue and what is being written
	smallDue, largeDue int   // those for what is being written
	uses               int   // how many HTTP requests use the link now
	reason             error // why the link is over
	forced             bool  // whether all writing has stopped
	writing            bool
	reading            *http.ResponseController // the controller of the POST whose body is being read; nil if there is none
	left               error                    // an error that names what has not ended; set before gone is closed
}

// newServerLink returns a link that its GET request uses.
func newServerLink(w http.ResponseWriter, r *http.Request, identity string, client share.Client, unread *web.Unread, maxFrame int) *serverLink {
	return &serverLink{
		client: client, unread: unread,
		identity: identity, http: web.VersionOf(r.Proto), maxFrame: maxFrame, w: w, control: http.NewResponseController(w),
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		closing: make(chan struct{}), unused: make(chan struct{}), gone: make(chan struct{}), uses: 1,
	}
}

// LinkTraits implements transport.LinkDescriber. It leaves out the session's id, which is a
// secret part of an address.
func (l *serverLink) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{Network: transport.Network{HTTP: l.http}}
}

// Bind implements transport.Link.
func (l *serverLink) Bind(to transport.Receiver) { l.recv.Bind(to) }

// Send implements transport.Link.
func (l *serverLink) Send(o transport.Outbound) error {
	if err := l.Refuses(o, "sse", l.maxFrame); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return transport.ErrClosed
	}
	if err := l.claim(o.Frame); err != nil {
		return err
	}
	if !l.queue.Push(o) {
		l.release(l.costOf(o.Frame))
		return transport.ErrBusy
	}
	l.signal()
	return nil
}

// costOf returns what a frame takes of each pool until it is written.
func (l *serverLink) costOf(frame []byte) (small, large int) {
	pool, bytes := l.unread.Of(l.client, frame)
	if pool == l.unread.Large {
		return 0, bytes
	}
	return bytes, 0
}

// claim takes room for a frame. It fails if the client has too much unread. The caller holds mu.
func (l *serverLink) claim(frame []byte) error {
	if err := l.unread.Take(l.client, frame); err != nil {
		return err
	}
	small, large := l.costOf(frame)
	l.small, l.large = l.small+small, l.large+large
	return nil
}

// release gives back room. The caller holds mu.
func (l *serverLink) release(small, large int) {
	l.small, l.large = l.small-small, l.large-large
	l.unread.Small.Give(l.client, small)
	l.unread.Large.Give(l.client, large)
}

// written gives back the room of the frames that were collected last.
func (l *serverLink) written() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(l.smallDue, l.largeDue)
	l.smallDue, l.largeDue = 0, 0
}

// signal makes the goroutine of the GET request check for frames.
func (l *serverLink) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // the goroutine has a token already
	}
}

// enter makes a POST use the link, and waits for its turn. After it, the caller calls
// next and leave.
func (l *serverLink) enter(ctx context.Context) *refusal {
	l.mu.Lock()
	switch {
	case l.reason != nil:
		l.mu.Unlock()
		return sessionNotFound
	case l.uses > maxWaiting:
		l.mu.Unlock()
		return &refusal{status: http.StatusServiceUnavailable, text: "too many messages of the session are waiting"}
	}
	l.uses++
	l.mu.Unlock()
	refused := sessionNotFound
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-l.closing:
	case <-ctx.Done():
	}
	l.leave()
	return refused
}

// next lets the next POST deliver its message.
func (l *serverLink) next() { <-l.turn }

// leave ends the use of the link by one request.
func (l *serverLink) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses--; l.uses == 0 && l.reason != nil {
		close(l.unused)
	}
}

// serve writes the stream until the client leaves or the link is over, and returns
// why.
func (l *serverLink) serve(ctx context.Context, endpoint string, keepAlive time.Duration) error {
	web.SetEventHeaders(l.w.Header(), new([3]string))
	l.w.WriteHeader(http.StatusOK)
	text, frames := eventstream.Append(nil, eventstream.Event{Type: "endpoint", Data: []byte(endpoint)}), 0
	quiet := time.NewTimer(keepAlive)
	defer quiet.Stop()
	for {
		if err := l.write(text, frames); err != nil {
			return err
		}
		l.written()
		quiet.Reset(keepAlive)
		var err error
		if text, frames, err = l.await(ctx, quiet.C); err != nil {
			return err
		}
	}
}

// await waits for frames. It returns their text as events, and their number. It
// returns a comment when quiet fires.
func (l *serverLink) await(ctx context.Context, quiet <-chan time.Time) (text []byte, frames int, err error) {
	for {
		text, frames, over := l.collect()
		switch {
		case frames > 0:
			return text, frames, nil
		case over:
			return nil, 0, transport.ErrClosed
		}
		select {
		case <-l.wake:
		case <-l.closing:
		case <-ctx.Done():
			return nil, 0, transport.ErrPeerClosed
		case <-quiet:
			return []byte(web.Comment), 0, nil
		}
	}
}

// collect returns the oldest frames, as many as go out in one write. They stay in the
// queue until they are written.
func (l *serverLink) collect() (text []byte, frames int, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for size := 0; frames < l.queue.Len(); frames++ {
		frame := l.queue.At(frames).Frame
		if size += len(frame); size > web.WriteSize && frames > 0 {
			break
		}
		text = eventstream.Append(text, eventstream.Event{Data: frame})
		small, large := l.costOf(frame)
		l.smallDue, l.largeDue = l.smallDue+small, l.largeDue+large
	}
	return text, frames, l.reason != nil
}

// write writes the text of the given number of frames piece by piece, so a slow but
// steady client has enough time for a long frame.
func (l *serverLink) write(text []byte, frames int) error {
	for piece := range slices.Chunk(text, web.WriteSize) {
		if !l.beginWrite(frames) {
			return transport.ErrClosed
		}
		frames = 0
		_, err := l.w.Write(piece)
		if err == nil {
			err = l.control.Flush()
		}
		l.endWrite()
		if err != nil {
			return fmt.Errorf("sse: write the stream: %w", transport.ErrPeerClosed)
		}
	}
	return nil
}

// beginWrite takes the frames that are written now out of the queue, unless nothing is
// written any more.
func (l *serverLink) beginWrite(frames int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forced {
		return false
	}
	if l.queue.Drop(frames); l.queue.Relieved() {
		defer l.recv.Tell(transport.Receiver.Writable)
	}
	l.writing = true
	l.control.SetWriteDeadline(time.Now().Add(web.WritePatience)) // a writer without deadlines does not block
	return true
}

// endWrite removes the deadline, because HTTP/2 would reset a quiet stream at the
// deadline of its last write.
func (l *serverLink) endWrite() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing = false; !l.forced {
		l.control.SetWriteDeadline(time.Time{})
	}
}

// Close implements transport.Link. What is queued is written within 70 % of the
// grace. The client is not asked to end: it sees the end of the stream.
func (l *serverLink) Close(grace time.Duration) error { return l.end(transport.ErrClosed, grace) }

// end ends the link. The first reason counts.
func (l *serverLink) end(reason error, grace time.Duration) error {
	if !l.setReason(reason) {
		web.EndWithin(l.gone, grace, l.force)
		<-l.gone
		return l.left
	}
	if !web.EndWithin(l.unused, grace, l.force) {
		l.left = errors.New("sse: an HTTP request has not ended")
	}
	l.mu.Lock()
	unsent := l.queue.Tags()
	l.release(l.small, l.large)
	l.smallDue, l.largeDue = 0, 0
	l.mu.Unlock()
	l.recv.Lose(transport.Loss{Reason: reason, Unsent: unsent})
	close(l.gone)
	return l.left
}

func (l *serverLink) setReason(reason error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return false
	}
	l.reason = reason
	close(l.closing)
	if l.uses == 0 {
		close(l.unused)
	}
	return true
}

func (l *serverLink) isOver() bool { return wait.IsClosed(l.closing) }

// force interrupts all reading and writing.
func (l *serverLink) force() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forced = true
	if l.writing {
		l.control.SetWriteDeadline(interrupted)
	}
	if l.reading != nil {
		l.reading.SetReadDeadline(interrupted)
	}
}

// setReadDeadline sets the deadline of the body that is being read. It has passed if
// reading was interrupted.
func (l *serverLink) setReadDeadline(body *http.ResponseController, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading = body; l.forced {
		deadline = interrupted
	}
	body.SetReadDeadline(deadline) // a writer without deadlines has no deadline
}

// bodyDone records that no body is being read any more.
func (l *serverLink) bodyDone(body *http.ResponseController) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = nil
	body.SetReadDeadline(time.Time{})
}
