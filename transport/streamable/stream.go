package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

const (
	// batchSize is how many bytes of queued frames go out in one write. A frame
	// that long goes out by itself.
	batchSize = 64 << 10

	// writePatience is how long one write may take.
	writePatience = 30 * time.Second
)

// A route is one HTTP response from the side of who fills it: its goroutine
// waits here for what to write. All but the channel is guarded by session.mu.
type route struct {
	session *serverSession
	control *http.ResponseController
	wake    chan struct{}
	box     *backlog
	over    bool // no more frames are accepted; what is queued is still written
	cut     bool // no more frames are written
	writing bool
}

func newRoute(s *serverSession, w http.ResponseWriter, box *backlog) route {
	return route{session: s, control: http.NewResponseController(w), wake: make(chan struct{}, 1), box: box}
}

// signal has the route's goroutine look again.
func (l *route) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// next waits for frames to write. It returns none when the quiet has lasted
// long enough, and an error when there will be none: io.EOF when the stream was
// ended, ErrClosed when the session was, ErrPeerClosed when the client has left.
func (l *route) next(ctx context.Context, quiet <-chan time.Time) ([]transport.Outbound, error) {
	for {
		frames, err := l.take()
		if len(frames) > 0 || err != nil {
			return frames, err
		}
		select {
		case <-l.wake:
		case <-l.session.closing:
		case <-ctx.Done():
			return nil, transport.ErrPeerClosed
		case <-quiet:
			return nil, nil
		}
	}
}

func (l *route) take() (frames []transport.Outbound, err error) {
	s := l.session
	s.mu.Lock()
	relieved := false
	if !l.cut && !s.forced {
		frames, relieved = l.box.take()
	}
	switch {
	case len(frames) > 0:
	case l.over || l.cut:
		err = io.EOF
	case s.reason != nil || s.forced:
		err = transport.ErrClosed
	}
	s.mu.Unlock()
	if relieved {
		s.to.tell(transport.Receiver.Writable)
	}
	return frames, err
}

// write makes one write within its time, unless nothing may be written any
// more.
func (l *route) write(do func() error) error {
	if !l.beginWrite() {
		return transport.ErrClosed
	}
	defer l.endWrite()
	return do()
}

func (l *route) beginWrite() bool {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.session.forced {
		return false
	}
	l.writing = true
	l.control.SetWriteDeadline(time.Now().Add(writePatience)) // who cannot set one does not block
	return true
}

func (l *route) endWrite() {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.writing = false
}

// interrupt ends a write under way. It is called with session.mu held.
func (l *route) interrupt() {
	if l.writing {
		l.control.SetWriteDeadline(time.Unix(0, 1))
	}
	l.signal()
}

// lost tells of frames that were taken to be written, and perhaps were not.
// Those that surely were not, because the session is over, go with it.
func (l *route) lost(frames []transport.Outbound, err error) {
	for _, o := range frames {
		switch {
		case o.Tag == 0:
		case err == transport.ErrClosed:
			l.session.addUnsent(o.Tag)
		case isRaised(l.session.closing): // interrupted: it may have arrived
		default:
			l.session.failed(o.Tag, err, false)
		}
	}
}

func (s *serverSession) failed(tag transport.Tag, err error, unsent bool) {
	s.to.tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: tag, Err: err, Unsent: unsent}) })
}

// A backlog holds the frames of a route until they are written.
type backlog struct {
	queue   queue.Queue
	refused bool // Writable is due
}

func (b *backlog) push(o transport.Outbound) bool {
	fits := b.queue.Push(o)
	b.refused = b.refused || !fits
	return fits
}

// take removes the oldest frames, as many as go out in one write, and reports
// whether that has made room for a refused one.
func (b *backlog) take() (frames []transport.Outbound, relieved bool) {
	for size := 0; b.queue.Len() > 0; b.queue.Drop(1) {
		o := b.queue.At(0)
		if size += len(o.Frame); size > batchSize && len(frames) > 0 {
			break
		}
		frames = append(frames, o)
	}
	return frames, b.queue.Relieved() && b.abandon()
}

// abandon reports whether somebody waits for room.
func (b *backlog) abandon() bool {
	waited := b.refused
	b.refused = false
	return waited
}

// writeError is what a failed write says of the client: one that takes nothing
// is told from one that has left.
func writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, transport.ErrClosed) {
		return err
	}
	return transport.ErrPeerClosed
}
