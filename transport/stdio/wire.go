package stdio

import (
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// errStopped ends a reader whose link needs no more frames.
var errStopped = errors.New("stdio: reading stopped")

// errLeft ends a goroutine that read, because another one reads now.
var errLeft = errors.New("stdio: another goroutine reads")

// A wire is the common part of the links of both sides: a reader and a writer, each with
// a goroutine. The link that embeds it decides when it ends, and calls Lose.
type wire struct {
	parts.Receiver
	parts.Single
	reads      parts.Reads
	in         io.ReadCloser
	out        io.WriteCloser
	maxFrame   int
	skips      bool // after an oversized frame, the wire continues
	reader     frameReader
	writer     *writer
	runner     transport.Runner // the receiver, if it is one; set before there is credit
	readerRole readerRole
	holds      bool        // the writer is held; used only by the goroutine that reads
	closing    wait.Signal // Close was called
	noCredit   wait.Signal // the reader does not wait for credit any more

	readDone, writeDone chan struct{} // closed when the goroutine has ended
	readErr, writeErr   error         // why; set before
}

var _ interface {
	transport.LinkDescriber
	transport.Flusher
} = (*wire)(nil)

func newWire(in io.ReadCloser, out io.WriteCloser, framing Framing, maxFrame int) *wire {
	if maxFrame <= 0 {
		maxFrame = parts.DefaultMaxFrame
	}
	w := &wire{
		in:        in,
		maxFrame:  maxFrame,
		out:       out,
		writer:    newWriter(out, framing),
		readDone:  make(chan struct{}),
		writeDone: make(chan struct{}),
	}
	w.reader = framing.reader(&releasing{w, w.reads.Reader(newDirectReader(in))}, maxFrame)
	return w
}

// Bind implements transport.Link.
func (w *wire) Bind(to transport.Receiver) {
	w.runner, _ = transport.As[transport.Runner](to)
	w.Receiver.Bind(to)
}

// LinkTraits implements transport.LinkDescriber.
func (w *wire) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{RecordsReads: true, LastRead: w.reads.Last()}
}

// Send implements transport.Link.
func (w *wire) Send(o transport.Outbound) error {
	if err := w.Refuses(o, "stdio", w.maxFrame); err != nil {
		return err
	}
	return w.writer.send(o)
}

// Flush implements transport.Flusher: it writes what Send has left to it (ADR-0051).
func (w *wire) Flush(int) { w.writer.flush() }

// CloseNow implements transport.Flusher: to close a pipe always waits for the other side.
func (w *wire) CloseNow() bool { return false }

// start runs the reader and the writer. Each ends with its stream, or when it is
// stopped. Call closeBoth after both have ended.
func (w *wire) start() {
	go w.reading()
	go func() {
		defer close(w.writeDone)
		writable := func() { w.Tell(transport.Receiver.Writable) }
		if w.writeErr = w.writer.run(writable); w.writeErr == nil {
			w.writeErr = w.out.Close() // the peer sees the end of its input
		}
	}()
}

// reading reads until the stream ends, or another goroutine takes over.
func (w *wire) reading() {
	err := w.read(w.readerRole.newGoroutine(w.reading))
	if err == errLeft {
		return // another goroutine now owns what reading uses
	}
	w.release()
	w.readErr = err
	close(w.readDone)
}

// read delivers frames against credit until the stream ends. A receiver that is a Runner
// works on this goroutine (ADR-0048). While read delivers frames that have arrived
// together, it collects what is flushed. It writes that before this goroutine waits for
// bytes or credit, and when it ends (ADR-0051).
func (w *wire) read(g *readerGoroutine) error {
	for w.takeCredit() {
		frame, err := w.reader.next()
		if err != nil && !(w.skips && isOversized(err)) {
			return err
		}
		if !w.holds && w.reader.buffered() {
			w.holds = true
			w.writer.hold()
		}
		came := transport.Inbound{Frame: frame, Err: err, Work: w.runner != nil}
		if told := w.Tell(func(to transport.Receiver) { to.Receive(came) }); told && came.Work && !w.serve(g) {
			return errLeft
		}
	}
	return errStopped
}

// takeCredit takes one credit. Before it waits for one, it releases what was collected.
func (w *wire) takeCredit() bool {
	if w.Credit.TryTake() {
		return true
	}
	w.release()
	return w.Credit.Take(w.noCredit.Wait(), nil)
}

// serve calls the receiver's Serve, which may run a handler. It reports whether this
// goroutine still has to read afterwards.
func (w *wire) serve(g *readerGoroutine) (reads bool) {
	more := w.reader.buffered()
	task := w.readerRole.beginCall(w.reading)
	g.task.Store(task)
	defer g.leave() // it matters only if the handler ends this goroutine
	w.runner.Serve(more, g.leave)
	return w.readerRole.endCall(task)
}

// release writes what was collected. The goroutine that reads calls it before it waits.
func (w *wire) release() {
	if w.holds {
		w.holds = false
		runtime.Gosched() // goroutines that the frames have woken send their frames first
		w.writer.release()
	}
}

// A releasing reader reads from the stream of a wire. Before each read it releases what
// was collected, so that nothing waits for the peer, even if the bytes read so far
// contain no frame.
type releasing struct {
	wire *wire
	from io.Reader
}

func (r *releasing) Read(p []byte) (int, error) {
	r.wire.release()
	return r.from.Read(p)
}

// stopReading ends the reader, even while it waits.
func (w *wire) stopReading() {
	w.noCredit.Fire()
	interrupt(w.in, func(s interface{ SetReadDeadline(time.Time) error }) error {
		return s.SetReadDeadline(time.Unix(0, 1))
	})
}

// stopWriting ends the writer, even while it waits.
func (w *wire) stopWriting() {
	w.writer.abort()
	interrupt(w.out, func(s interface{ SetWriteDeadline(time.Time) error }) error {
		return s.SetWriteDeadline(time.Unix(0, 1))
	})
}

// interrupt makes a blocked call on the stream return: by a deadline, or by
// closing the stream. A file without deadlines cannot be interrupted.
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

// closeBoth closes both streams, one of which may be closed already.
func (w *wire) closeBoth() {
	w.readerRole.stop()
	w.in.Close()
	w.out.Close()
}

func isOversized(err error) bool {
	var oversized *transport.OversizedError
	return errors.As(err, &oversized)
}

// forcedWait is how long escalate waits after force. It may not be enough for a process
// that the kernel does not let die.
const forcedWait = 5 * time.Second

// escalate waits for done. It calls ask after 30 % of the grace and force after 70 %. It
// returns false if even force did not help.
func escalate(done <-chan struct{}, grace time.Duration, ask, force func()) bool {
	askAt, forceAt := grace/10*3, grace/10*7
	if wait.Within(done, askAt) {
		return true
	}
	if forceAt > 0 {
		ask()
		if wait.Within(done, forceAt-askAt) {
			return true
		}
	}
	force()
	return wait.Within(done, forcedWait)
}
