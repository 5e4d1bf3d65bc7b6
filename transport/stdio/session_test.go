package stdio

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A session ends by the end or the failure of a stream, by what arrives, or by Close, and says why. Close has a second for each
// stream that cannot be interrupted, and names it. Whatever ended it, its streams are closed.
//
// Guarantees: G-0014.7, G-0014.11, G-0014.15
func TestHowASessionEnds(t *testing.T) {
	broken := errors.New("broken")
	const grace, forced = 10 * time.Second, 7 * time.Second
	closes := func(l transport.Link) { go l.Close(grace) }
	fails := func(text string, err error) func(p []byte) (int, error) {
		return func(p []byte) (int, error) { return copy(p, text), err }
	}
	for name, test := range map[string]struct {
		framing     Framing
		read, write func(p []byte) (int, error) // nil: it waits until it is closed
		stuck       string                      // which of them wait even then
		then        func(l transport.Link)
		after       time.Duration
		server      string // the reason for a Server; "": none, the session lives on
		streams     string // and for Streams
		is          error
		unsent      []transport.Tag
		left        string
	}{
		"the input ends":               {Lines, fails("1\n", io.EOF), nil, "", nil, 0, "", "transport: peer closed the link", transport.ErrPeerClosed, []transport.Tag{1, 2}, ""},
		"a read fails":                 {Lines, fails("1\n", broken), nil, "", nil, 0, "stdio: read: broken", "stdio: read: broken", broken, []transport.Tag{1, 2}, ""},
		"a write fails":                {Lines, nil, fails("", broken), "", nil, 0, "stdio: write: broken", "stdio: write: broken", broken, []transport.Tag{1, 2}, ""},
		"a wrong header":               {ContentLength, fails("x\n", broken), nil, "", nil, 0, `stdio: read: stdio: frame header "x": expected NAME: VALUE`, `stdio: read: stdio: frame header "x": expected NAME: VALUE`, nil, []transport.Tag{1, 2}, ""},
		"Close":                        {Lines, nil, nil, "", closes, forced, "transport: link closed", "transport: link closed", transport.ErrClosed, []transport.Tag{1, 2}, ""},
		"Close at once":                {Lines, nil, nil, "", func(l transport.Link) { go l.Close(0) }, 0, "transport: link closed", "transport: link closed", transport.ErrClosed, []transport.Tag{1, 2}, ""},
		"Close, and nothing is queued": {Lines, nil, func(p []byte) (int, error) { return len(p), nil }, "", closes, 0, "transport: link closed", "transport: link closed", transport.ErrClosed, nil, ""},
		"Close, and a stuck read": {Lines, nil, func(p []byte) (int, error) { return len(p), nil }, "read", closes, interruptWait, "transport: link closed", "transport: link closed", transport.ErrClosed, nil,
			"stdio: a read from the input has not returned"},
		"Close, and a stuck write": {Lines, nil, nil, "write", closes, forced + interruptWait, "transport: link closed", "transport: link closed", transport.ErrClosed, []transport.Tag{1, 2},
			"stdio: a write to the output has not returned"},
		"Close, and both are stuck": {Lines, nil, nil, "read write", closes, forced + 2*interruptWait, "transport: link closed", "transport: link closed", transport.ErrClosed, []transport.Tag{1, 2},
			"stdio: a read from the input has not returned\nstdio: a write to the output has not returned"},
		"a read fails, and a stuck write": {Lines, fails("1\n", broken), nil, "write", nil, interruptWait, "stdio: read: broken", "stdio: read: broken", broken, []transport.Tag{1, 2},
			"stdio: a write to the output has not returned"},
	} {
		for kind, reason := range map[string]string{"Server": test.server, "Streams": test.streams} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					release, queued := make(chan struct{}), make(chan struct{})
					in, out := newScriptedStream(test.read, release), newScriptedStream(once(queued, test.write), release)
					in.stuck, out.stuck = strings.Contains(test.stuck, "read"), strings.Contains(test.stuck, "write")
					var from transport.Transport = &Server{In: in, Out: out, Framing: test.framing}
					if kind == "Streams" {
						from = &Streams{Dial: dialled(struct {
							io.Reader
							io.WriteCloser
						}{in, bothClosed{out, in}}), Framing: test.framing}
					}
					link, err := from.Open(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					p := &peer{t: t, Link: link, frames: newFrames()}
					link.Bind(p.frames)
					began := time.Now()
					for tag := range transport.Tag(2) {
						if err := link.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("1")}); err != nil {
							t.Fatal(err)
						}
						synctest.Wait() // the first one is being written
					}
					close(queued)
					synctest.Wait()
					link.Grant(transport.Main, 10)
					if test.then != nil {
						test.then(link)
					}
					if reason == "" {
						receive(t, p.ended, "end of the input")
						if synctest.Wait(); len(p.lost) > 0 {
							t.Errorf("the session is lost: %+v, want that it can still write", <-p.lost)
						}
						p.close(0)
						return
					}
					loss := p.waitLoss()
					if after := time.Since(began); after != test.after {
						t.Errorf("the loss came after %v, want %v", after, test.after)
					}
					if loss.Reason.Error() != reason || test.is != nil && !errors.Is(loss.Reason, test.is) || !slices.Equal(loss.Unsent, test.unsent) {
						t.Errorf("got the loss %v, unsent %v, want %s and %v", loss.Reason, loss.Unsent, reason, test.unsent)
					}
					if err := link.Close(time.Hour); (err == nil) != (test.left == "") || err != nil && err.Error() != test.left {
						t.Errorf("Close returned %v, want %q", err, test.left)
					}
					select {
					case <-p.ended:
						t.Error("the receiver was told of the end of the input, and of the loss")
					default:
					}
					if !in.isClosed() || !out.isClosed() {
						t.Errorf("the input is closed: %t, the output is closed: %t; want both", in.isClosed(), out.isClosed())
					}
					close(release)
					synctest.Wait()
				})
			})
		}
	}
}

// A slowReceiver takes its time for the loss.
type slowReceiver struct {
	*frames
	takes time.Duration
}

func (r slowReceiver) Lost(loss transport.Loss) {
	<-time.NewTimer(r.takes).C
	r.frames.Lost(loss)
}

// Close returns when the receiver was told of the loss, however long that takes.
//
// Guarantees: G-0014.11
func TestCloseReturnsAfterTheLoss(t *testing.T) {
	for _, kind := range []string{"Server", "Command"} {
		bubble(t, func(t *testing.T) {
			var link transport.Link
			if kind == "Server" {
				in, peer := net.Pipe()
				defer peer.Close()
				link = mustOpen(t, &Server{In: in, Out: in})
			} else {
				l, output := exitedChild(t)
				defer output.Close()
				l.process = &process{child: &os.Process{Pid: 7}, reaped: true}
				l.wire.start()
				go l.supervise()
				link = l
			}
			to := slowReceiver{newFrames(), time.Hour}
			link.Bind(to)
			if err := link.Close(0); err != nil || len(to.lost) != 1 {
				t.Errorf("%s: Close returned %v after %d losses, want nil after one", kind, err, len(to.lost))
			}
		})
	}
}

// A scriptedStream does what a test says, or waits until it is closed.
type scriptedStream struct {
	do      func([]byte) (int, error)
	closed  chan struct{}
	stuck   bool          // a call waits even after Close
	release chan struct{} // ends all calls
}

func newScriptedStream(do func([]byte) (int, error), release chan struct{}) *scriptedStream {
	return &scriptedStream{do: do, closed: make(chan struct{}), release: release}
}

// once returns a function that does the same, but waits until it may.
func once(may <-chan struct{}, do func([]byte) (int, error)) func([]byte) (int, error) {
	if do == nil {
		return nil
	}
	return func(p []byte) (int, error) {
		<-may
		return do(p)
	}
}

func (s *scriptedStream) call(p []byte) (int, error) {
	if s.do != nil {
		return s.do(p)
	}
	if s.stuck {
		<-s.release
	} else {
		<-s.closed
	}
	return 0, io.ErrClosedPipe
}

func (s *scriptedStream) Read(p []byte) (int, error)  { return s.call(p) }
func (s *scriptedStream) Write(p []byte) (int, error) { return s.call(p) }

func (s *scriptedStream) Close() error {
	if !s.isClosed() {
		close(s.closed)
	}
	return nil
}

func (s *scriptedStream) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// bothClosed closes another stream, too.
type bothClosed struct {
	io.WriteCloser
	other io.Closer
}

func (b bothClosed) Close() error { return errors.Join(b.WriteCloser.Close(), b.other.Close()) }

// A blocked call is interrupted by a deadline that has passed. If the stream has none, it is closed, unless it is a file.
func TestHowAStreamIsInterrupted(t *testing.T) {
	r, w := mustPipe(t)
	defer closeAll([]*os.File{r, w})
	for name, test := range map[string]struct {
		stream io.Closer
		closed bool
	}{
		"deadlines":           {new(deadlined), false},
		"deadlines that fail": {&deadlined{err: os.ErrNoDeadline}, true},
		"no deadlines":        {new(closable), true},
		"a file":              {r, false},
	} {
		interrupt(test.stream, func(s interface{ SetReadDeadline(time.Time) error }) error {
			return s.SetReadDeadline(time.Unix(0, 1))
		})
		var closed bool
		switch s := test.stream.(type) {
		case *deadlined:
			if closed = s.closed; !s.at.Before(time.Now()) || s.at.IsZero() {
				t.Errorf("%s: the deadline is %v, want one that has passed", name, s.at)
			}
		case *closable:
			closed = s.closed
		case *os.File:
			_, err := s.Stat()
			closed = err != nil
		}
		if closed != test.closed {
			t.Errorf("%s: the stream is closed: %t, want %t", name, closed, test.closed)
		}
	}
}

type closable struct{ closed bool }

func (c *closable) Close() error { c.closed = true; return nil }

// A deadlined stream has deadlines, unless it has an error.
type deadlined struct {
	closable
	at  time.Time
	err error
}

func (d *deadlined) SetReadDeadline(at time.Time) error { d.at = at; return d.err }
