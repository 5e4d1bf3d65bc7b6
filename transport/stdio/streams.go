package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/transport"
)

// Streams is a transport over byte streams that your program opens: a socket, the
// standard streams of an SSH session, a serial line. Do not change the fields after
// the first Open.
//
// A link owns its streams, and closes them. It is lost when
//
//   - In ends: the reason is transport.ErrPeerClosed;
//   - a read or a write fails;
//   - a frame is longer than MaxFrame: the reason wraps a
//     *transport.OversizedError;
//   - a header of ContentLength framing is invalid: the reason wraps a *HeaderError.
//
// Close writes what is queued, for at most 70 % of its grace. For streams that cannot
// be interrupted, see Server.
type Streams struct {
	// Dial opens the streams of one link. Both may be the same value. The context
	// limits only Dial.
	Dial func(ctx context.Context) (in io.ReadCloser, out io.WriteCloser, err error)

	Framing  Framing // how frames are separated; default: Lines, as MCP requires
	MaxFrame int     // the maximum size of a frame in either direction, in bytes; default: 16 MiB
}

// ErrPairUsed is returned by Open when the streams of a Pair have already been used.
var ErrPairUsed = errors.New("stdio: this pair of streams has been used: it serves one link")

// Pair returns Streams over two streams that are already open. They can be used for
// one link; after that, Open fails with ErrPairUsed. A client that must find out the
// revision of its server may need a second link. To avoid that, set
// client.Options.ProtocolVersion, or use Streams.Dial.
func Pair(in io.ReadCloser, out io.WriteCloser) *Streams {
	var used atomic.Bool
	return &Streams{Dial: func(context.Context) (io.ReadCloser, io.WriteCloser, error) {
		if used.Swap(true) {
			return nil, nil, ErrPairUsed
		}
		return in, out, nil
	}}
}

// Open calls Dial. It fails if Dial fails, or if ctx has ended.
func (s *Streams) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	in, out, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if in == nil || out == nil {
		return nil, errors.New("stdio: Dial returned no streams")
	}
	ownIn, ownOut, err := own(in, out)
	if err != nil {
		_ = errors.Join(in.Close(), out.Close()) // one of them may be closed already
		return nil, err
	}
	return newSession(newWire(ownIn, ownOut, s.Framing, s.MaxFrame), ofStreams, func() {}), nil
}

// own makes files interruptible.
func own(in io.ReadCloser, out io.WriteCloser) (io.ReadCloser, io.WriteCloser, error) {
	if f, ok := in.(*os.File); ok {
		mine, err := ownFile(f)
		if err != nil {
			return nil, nil, err
		}
		in = mine
	}
	if f, ok := out.(*os.File); ok {
		mine, err := ownFile(f)
		if err != nil {
			if mine, ok := in.(*file); ok {
				err = errors.Join(err, mine.Close())
			}
			return nil, nil, err
		}
		out = mine
	}
	return in, out, nil
}

// A role is which side of a session this process is on.
type role int

const (
	ofServer  role = iota // the end of the input leaves the session writable, and an oversized frame is skipped
	ofStreams             // either loses the link
)

// ended returns why a session whose input has ended is over, if it is.
func (r role) ended(err error) (reason error, over bool) {
	switch {
	case err != io.EOF:
		return fmt.Errorf("stdio: read: %w", err), true
	case r == ofStreams:
		return transport.ErrPeerClosed, true
	default:
		return nil, false
	}
}
