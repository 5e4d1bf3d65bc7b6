package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

const (
	// batchSize is how many bytes of queued frames go out in one write. A longer
	// frame goes out by itself, in as many writes as it takes.
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
	over    bool  // no more frames are accepted; what is queued is still written
	cut     error // why no more frames are taken from the queue
	writing bool
	stopped bool // nothing more is written, not even the rest of a frame
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
// ended, why it was cut, ErrClosed when the session was ended, ErrPeerClosed
// when the client has left.
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
	if l.cut == nil && !s.forced {
		frames, relieved = l.box.take()
	}
	switch {
	case len(frames) > 0:
	case l.cut != nil:
		err = l.cut
	case l.over:
		err = io.EOF
	case s.reason != nil || s.forced:
		err = transport.ErrClosed
	}
	s.mu.Unlock()
	if relieved {
		s.to.Tell(transport.Receiver.Writable)
	}
	return frames, err
}

// write makes one write within its time, unless nothing may be written any
// more.
func (l *route) write(do func() error) error {
	if err := l.beginWrite(); err != nil {
		return err
	}
	defer l.endWrite()
	return do()
}

func (l *route) beginWrite() error {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	switch {
	case !l.stopped:
	case l.cut != nil:
		return l.cut
	default:
		return transport.ErrClosed
	}
	l.writing = true
	l.control.SetWriteDeadline(time.Now().Add(writePatience)) // who cannot set one does not block
	return nil
}

func (l *route) endWrite() {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.writing = false
}

// limit gives what is written from now on its time; none lifts the limit of the
// write before, at which HTTP/2 would reset a stream that is only quiet.
func (l *route) limit(deadline time.Time) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if !l.stopped {
		l.control.SetWriteDeadline(deadline)
	}
}

// interrupt ends a write under way, and has none begun. It is called with
// session.mu held.
func (l *route) interrupt() {
	l.stopped = true
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
		case latch.IsRaised(l.session.closing): // interrupted: it may have arrived
		default:
			l.session.failed(o.Tag, err, false)
		}
	}
}

func (s *serverSession) failed(tag transport.Tag, err error, unsent bool) {
	s.to.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: tag, Err: err, Unsent: unsent}) })
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
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, transport.ErrClosed) {
		return err
	}
	return transport.ErrPeerClosed
}
