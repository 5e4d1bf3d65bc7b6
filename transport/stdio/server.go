package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A Server is a transport whose peer is the process that started this one. It
// has one link at a time.
//
// The end of In is Receiver.Ended: the link stays writable. A failed write
// loses the link. A line above MaxFrame is skipped to its newline with bounded
// memory, and delivered, for one credit, as Inbound.Err = *OversizedError.
//
// Close flushes what is queued, for at most 70 % of its grace, and closes In
// and Out. The process's own standard streams are not closed, since they end
// with the process. While a link is open on the process's own standard output,
// os.Stdout is os.Stderr, so that a stray fmt.Println cannot corrupt the
// stream: open the server before other goroutines print.
//
// Close interrupts a blocked read or write of a pipe or socket (on Unix the
// descriptor is non-blocking meanwhile), and of any stream that has deadlines
// or whose Close unblocks it. It cannot interrupt those of a terminal, nor of
// any file on Windows: then Close says so, and the goroutine ends, delivering
// nothing, when the call returns.
type Server struct {
	In       io.ReadCloser  // default: os.Stdin
	Out      io.WriteCloser // default: os.Stdout
	MaxFrame int            // bytes of one frame, either way; default 16 MiB

	mu   sync.Mutex
	live *session
}

var errAlreadyOpen = errors.New("stdio: the server is open already")

// Open takes the streams over. It fails while an earlier link is live.
func (s *Server) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil && !latch.IsRaised(s.live.gone) {
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
	if f, ok := in.(*os.File); ok {
		own, err := ownFile(f)
		if err != nil {
			return nil, err
		}
		in = own
	}
	restore := func() {}
	if f, ok := out.(*os.File); ok {
		own, err := ownFile(f)
		if err != nil {
			return nil, errors.Join(err, in.Close())
		}
		if out = own; f == os.Stdout {
			restore = protectStdout()
		}
	}
	return newSession(newWire(in, out, s.MaxFrame), restore), nil
}

// protectStdout sends what others print to standard error until it is undone.
func protectStdout() (restore func()) {
	stdout := os.Stdout
	os.Stdout = os.Stderr
	return func() { os.Stdout = stdout }
}

func isStandard(f *os.File) bool { return f == os.Stdin || f == os.Stdout || f == os.Stderr }
