package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/heard"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

const defaultMaxFrame = 16 << 20

// errStopped ends a reader whose link needs no more frames.
var errStopped = errors.New("stdio: reading stopped")

// A wire is what both sides have in common: a reader and a writer, each with
// its goroutine. Who embeds it decides when the link ends, and calls lose.
type wire struct {
	told
	heard   heard.Counter
	in      io.ReadCloser
	out     io.WriteCloser
	skips   bool // an oversized line is refused and skipped, and the wire lives
	credit  *credit
	reader  reader
	writer  *writer
	closing *latch.Latch // Close was called

	readDone, writeDone chan struct{} // closed when the goroutine has ended
	readErr, writeErr   error         // why; set before
}

func newWire(in io.ReadCloser, out io.WriteCloser, maxFrame int) *wire {
	if maxFrame <= 0 {
		maxFrame = defaultMaxFrame
	}
	w := &wire{
		in:        in,
		out:       out,
		credit:    newCredit(),
		writer:    newWriter(out, maxFrame),
		closing:   latch.New(),
		readDone:  make(chan struct{}),
		writeDone: make(chan struct{}),
	}
	w.reader = reader{from: w.heard.Reader(in), limit: maxFrame}
	return w
}

// Heard implements transport.Hearing.
func (w *wire) Heard() (bytes uint64, ok bool) { return w.heard.Bytes(), true }

func (w *wire) Send(o transport.Outbound) error {
	if o.Stream != transport.Main {
		return fmt.Errorf("stdio: send on stream %d: %w", o.Stream, transport.ErrNoRoute)
	}
	return w.writer.send(o)
}

func (w *wire) Grant(stream transport.Stream, frames int) {
	if stream == transport.Main {
		w.credit.grant(frames)
	}
}

// Resume implements transport.Link. Main is never lost while the link lives.
func (w *wire) Resume(transport.Stream) {}

// End implements transport.Link. There is no stream but Main.
func (w *wire) End(transport.Stream) {}

// start runs the reader and the writer. Each ends when its stream does, or
// when it is stopped; release is then left to do.
func (w *wire) start() {
	go func() {
		defer close(w.readDone)
		w.readErr = w.read()
	}()
	go func() {
		defer close(w.writeDone)
		if w.writeErr = w.writer.run(w.writable); w.writeErr == nil {
			w.writeErr = w.out.Close() // the peer's end of input
		}
	}()
}

// read delivers frames against credit until the stream ends.
func (w *wire) read() error {
	for w.credit.take() {
		frame, err := w.reader.next()
		if err != nil && !(w.skips && isOversized(err)) {
			return err
		}
		w.receive(transport.Inbound{Frame: frame, Err: err})
	}
	return errStopped
}

// stopReading ends the reader, wherever it waits.
func (w *wire) stopReading() {
	w.credit.close()
	interrupt(w.in, func(s interface{ SetReadDeadline(time.Time) error }) error {
		return s.SetReadDeadline(time.Unix(0, 1))
	})
}

// stopWriting ends the writer, wherever it waits.
func (w *wire) stopWriting() {
	w.writer.abort()
	interrupt(w.out, func(s interface{ SetWriteDeadline(time.Time) error }) error {
		return s.SetWriteDeadline(time.Unix(0, 1))
	})
}

// interrupt makes a blocked call on the stream return: by its deadline, or
// else by closing it. A file without deadlines cannot be interrupted.
func interrupt[D any](stream io.Closer, deadline func(D) error) {
	if s, ok := stream.(D); ok && deadline(s) == nil {
		return
	}
	switch stream.(type) {
	case *os.File, *file:
	default:
		stream.Close()
	}
}

// release closes both streams. One may be closed already, and nothing is left
// in either that closing could lose.
func (w *wire) release() {
	w.in.Close()
	w.out.Close()
}

func isOversized(err error) bool {
	var oversized *transport.OversizedError
	return errors.As(err, &oversized)
}
