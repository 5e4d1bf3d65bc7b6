package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// A Server is a transport whose peer is the process that started this one. It
// has one link at a time.
//
// At the end of In, the link calls Receiver.Ended and stays writable. The link is
// lost when a write fails, or when a header of ContentLength framing is invalid. The
// link skips a frame longer than MaxFrame without holding it in memory: for one
// credit it delivers a *transport.OversizedError as Inbound.Err.
//
// Close writes what is queued, for at most 70 % of its grace. It then closes In and
// Out, unless they are the standard streams of the process. While a link uses the
// standard output of the process, os.Stdout is os.Stderr, so a stray fmt.Println
// cannot corrupt the stream. Open the server before other goroutines print.
//
// Close interrupts a blocked read or write on a pipe or a socket, and on any stream
// that has deadlines or that its own Close unblocks. On Unix the descriptor is
// non-blocking while the link is open. Close cannot interrupt a terminal, or any file
// on Windows. In that case it returns an error after a second. The goroutine ends
// when its read or write returns, and delivers nothing.
type Server struct {
	In       io.ReadCloser  // default: os.Stdin
	Out      io.WriteCloser // default: os.Stdout
	Framing  Framing        // how frames are separated; default: Lines, as MCP requires
	MaxFrame int            // the maximum size of a frame in either direction, in bytes; default: 16 MiB

	mu   sync.Mutex
	live *session
}

var errAlreadyOpen = errors.New("stdio: the server is open already")

// Open takes over the streams. It fails while an earlier link is open, or if ctx has
// already ended; otherwise ctx has no effect.
func (s *Server) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil && !wait.IsClosed(s.live.gone) {
		return nil, errAlreadyOpen
	}
	live, err := s.open()
	if err != nil {
		return nil, err
	}
	s.live = live
	return live, nil
}

func (s *Server) open() (*session, error) {
	var in io.ReadCloser = os.Stdin
	if s.In != nil {
		in = s.In
	}
	var out io.WriteCloser = os.Stdout
	if s.Out != nil {
		out = s.Out
	}
	onStdout := out == io.WriteCloser(os.Stdout)
	in, out, err := own(in, out)
	if err != nil {
		return nil, err
	}
	restore := func() {}
	if onStdout {
		restore = protectStdout()
	}
	return newSession(newWire(in, out, s.Framing, s.MaxFrame), ofServer, restore), nil
}

// protectStdout sends what others print to standard error, until restore.
func protectStdout() (restore func()) {
	stdout := os.Stdout
	os.Stdout = os.Stderr
	return func() { os.Stdout = stdout }
}

func isStandard(f *os.File) bool { return f == os.Stdin || f == os.Stdout || f == os.Stderr }

// interruptWait is how long an interrupted read or write may take to return
// before Close reports it.
const interruptWait = time.Second

// A session is the link of a Server, or of Streams. Its goroutines are the two of the wire, and
// supervise, which ends last and reports the loss.
type session struct {
	*wire
	role    role
	restore func()        // gives standard output back
	forced  wait.Signal   // the time for writing what is queued is up
	gone    chan struct{} // everything has ended
	left    error         // what has not; set before gone is closed
}

func newSession(w *wire, role role, restore func()) *session {
	w.skips = role == ofServer
	l := &session{wire: w, role: role, restore: restore, gone: make(chan struct{})}
	l.wire.start()
	go l.supervise()
	return l
}

// Close implements transport.Link.
func (l *session) Close(grace time.Duration) error {
	l.closing.Fire()
	escalate(l.gone, grace, func() {}, l.forced.Fire)
	<-l.gone
	return l.left
}

// supervise waits for what ends the link, ends the rest, and reports the loss.
func (l *session) supervise() {
	defer close(l.gone)
	reason := l.firstEnd()
	l.writer.finish()
	if reason == transport.ErrClosed {
		select {
		case <-l.writeDone:
		case <-l.forced.Wait():
		}
	}
	l.stopReading()
	l.stopWriting()
	if !wait.Within(l.readDone, interruptWait) {
		l.left = errors.New("stdio: a read from the input has not returned")
	}
	if !wait.Within(l.writeDone, interruptWait) {
		l.left = errors.Join(l.left, errors.New("stdio: a write to the output has not returned"))
	}
	l.closeBoth()
	l.restore()
	l.Lose(transport.Loss{Reason: reason, Unsent: l.writer.unsent()})
}

// firstEnd waits for the end of the link and returns its reason.
func (l *session) firstEnd() error {
	reading := l.readDone
	for {
		select {
		case <-l.closing.Wait():
			return transport.ErrClosed
		case <-l.writeDone:
			return fmt.Errorf("stdio: write: %w", l.writeErr)
		case <-reading:
			if reason, over := l.role.ended(l.readErr); over {
				return reason
			}
			l.Tell(transport.Receiver.Ended)
			reading = nil
		}
	}
}
