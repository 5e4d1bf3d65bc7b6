package stdio

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A session is the link of a Server. Its goroutines are the wire's two and
// supervise, which outlives them and tells the loss.
type session struct {
	*wire
	restore func()        // gives standard output back
	forced  *latch.Latch  // the flush has had its time
	gone    chan struct{} // everything has ended
	left    error         // what has not; set before gone is closed
}

func newSession(w *wire, restore func()) *session {
	w.skips = true
	l := &session{wire: w, restore: restore, forced: latch.New(), gone: make(chan struct{})}
	l.wire.start()
	go l.supervise()
	return l
}

// Close implements transport.Link.
func (l *session) Close(grace time.Duration) error {
	l.closing.Raise()
	climb(l.gone, grace, func() {}, l.forced.Raise)
	<-l.gone
	return l.left
}

// supervise waits for what ends the link, ends the rest, and tells the loss.
func (l *session) supervise() {
	defer close(l.gone)
	reason := l.firstEnd()
	l.writer.finish()
	if reason == transport.ErrClosed {
		l.flush()
	}
	l.stopReading()
	l.stopWriting()
	if !latch.Within(l.readDone, interruptWait) {
		l.left = errors.New("stdio: a read of the input has not returned")
	}
	if !latch.Within(l.writeDone, interruptWait) {
		l.left = errors.Join(l.left, errors.New("stdio: a write to the output has not returned"))
	}
	l.release()
	l.restore()
	l.Lose(transport.Loss{Reason: reason, Unsent: l.writer.unsent()})
}

// firstEnd says why the link is over. The end of the input is not a reason.
func (l *session) firstEnd() error {
	reading := l.readDone
	for {
		select {
		case <-l.closing.Raised:
			return transport.ErrClosed
		case <-l.writeDone:
			return fmt.Errorf("stdio: write: %w", l.writeErr)
		case <-reading:
			if l.readErr != io.EOF {
				return fmt.Errorf("stdio: read: %w", l.readErr)
			}
			l.ended()
			reading = nil
		}
	}
}

// flush waits until what is queued is written, or has had its time.
func (l *session) flush() {
	select {
	case <-l.writeDone:
	case <-l.forced.Raised:
	}
}
