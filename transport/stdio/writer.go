package stdio

import (
	"bytes"
	"io"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// batchSize is how many bytes of queued frames one write takes. A frame of at least that
// size is written separately; a line is written without a copy.
const batchSize = 64 << 10

// A writer writes queued frames with their framing, in as few writes as possible. A
// frame stays in the queue until the operating system has accepted a byte of it. So the
// frames that are left in the queue at the end are unsent.
//
// If a write cannot block, send itself makes one, with what fits the pipe. The writer's
// own goroutine writes the rest. It also writes everything to a stream on which writes
// may block (ADR-0051).
type writer struct {
	to      io.Writer
	direct  directWriter // nil: a write to the stream may block
	framing Framing

	mu       sync.Mutex
	wake     sync.Cond
	queue    parts.Queue
	gather   int   // send writes when so many frames wait; 0 before the first flush
	held     bool  // flush leaves the writing to release, which is called soon
	writing  bool  // a write is running, and uses the fields below
	relieved bool  // a frame that was refused fits now, and writable was not called yet
	refusing bool  // send accepts nothing more
	finished bool  // nothing more is accepted, and run ends when the queue is empty
	aborted  bool  // nothing more is written
	err      error // of a write on the goroutine that sends

	// These describe the present write.
	batch  []byte
	text   []byte // what is written
	tail   string // a newline that follows the text in a write of its own
	frames int    // the number of frames in text, from the head of the queue
	owed   int    // how much of text and tail belongs to an earlier frame

	// This is the rest of a frame whose beginning was written.
	rest      []byte
	restsTail string
}

// A directWriter writes what its stream accepts immediately, and returns how many bytes
// that was. It never waits. A full stream is not an error.
type directWriter interface {
	Write(text []byte) (n int, err error)
}

func newWriter(to io.Writer, framing Framing) *writer {
	w := &writer{to: to, direct: newDirectWriter(to), framing: framing}
	w.wake.L = &w.mu
	return w
}

func (w *writer) send(o transport.Outbound) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished || w.refusing {
		return transport.ErrClosed
	}
	if !w.queue.Push(o) {
		return transport.ErrBusy
	}
	if w.framing == Lines {
		flatten(o.Frame)
	}
	if w.queue.Len() >= w.gather || w.queue.Size() >= batchSize {
		w.begin()
		w.gather = min(2*w.gather, mostGathered)
	}
	return nil
}

// At most this many frames wait for flush, or for release: send writes them when their
// number reaches w.gather, which doubles each time, and is the fewest again after hold. So
// the peer soon has work, and many frames need few writes (ADR-0066).
const (
	fewestGathered = 4
	mostGathered   = 64
)

// flush writes what was sent. After its first call, send leaves writing to flush.
func (w *writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gather = max(w.gather, fewestGathered)
	w.flushNow()
}

func (w *writer) flushNow() {
	if w.queue.Len() > 0 && !w.finished && !w.held {
		w.begin()
	}
}

// hold makes flush leave the writing to release. It does not change what send writes
// without a flush.
func (w *writer) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
	w.gather = min(w.gather, fewestGathered)
}

// release writes what was flushed since hold was called.
func (w *writer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		w.held = false
		w.flushNow()
	}
}

// begin writes as much as possible without waiting, on this goroutine, and leaves the
// rest to run. The caller holds the mutex, which begin releases meanwhile.
func (w *writer) begin() {
	if w.writing {
		return // the goroutine that writes also handles the queue
	}
	if w.direct == nil || len(w.rest)+len(w.restsTail) > 0 {
		w.wake.Signal()
		return
	}
	w.fill()
	w.mu.Unlock()
	n, err := w.direct.Write(w.text)
	w.mu.Lock()
	w.settle(n)
	if err != nil {
		w.err, w.finished = err, true
	}
	if w.due() {
		w.wake.Signal()
	}
}

// flatten replaces newlines by spaces. In JSON both are insignificant.
func flatten(frame []byte) {
	for i := bytes.IndexByte(frame, '\n'); i >= 0; i = bytes.IndexByte(frame, '\n') {
		frame[i] = ' '
		frame = frame[i+1:]
	}
}

// run writes what no other goroutine writes. It ends when the writer is finished and its
// queue is empty, when it is aborted, or when a write fails; then it returns that error.
// It calls writable when a refused frame would fit.
func (w *writer) run(writable func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.writing || !w.due() {
			w.wake.Wait()
		}
		switch {
		case w.relieved:
			w.relieved = false
			w.unlocked(writable)
		case w.err != nil:
			return w.err
		case w.aborted, !w.unwritten():
			w.finished = true
			return nil
		default:
			w.fill()
			var n int
			var err error
			w.unlocked(func() { n, err = w.to.Write(w.text) })
			if w.settle(n); err != nil {
				w.err, w.finished = err, true
			}
		}
	}
}

// unlocked calls a function with the mutex unlocked.
func (w *writer) unlocked(call func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	call()
}

// due reports whether run has something to do.
func (w *writer) due() bool { return w.finished || w.relieved || w.unwritten() }

func (w *writer) unwritten() bool { return w.queue.Len() > 0 || len(w.rest)+len(w.restsTail) > 0 }

// fill begins a write of the rest of a frame, and of as many frames as fit in a batch.
func (w *writer) fill() {
	w.writing = true
	w.frames, w.owed, w.tail = 0, len(w.rest)+len(w.restsTail), ""
	if len(w.rest) >= batchSize {
		w.text, w.tail = w.rest, w.restsTail
		return
	}
	w.text = append(append(w.batch[:0], w.rest...), w.restsTail...)
	for w.frames < w.queue.Len() {
		frame := w.queue.At(w.frames).Frame
		if len(w.text)+len(frame) >= batchSize {
			if len(w.text) == 0 {
				w.fillLong(frame)
				return
			}
			break
		}
		w.text = append(append(append(w.text, w.framing.before(frame)...), frame...), w.framing.after()...)
		w.frames++
	}
	w.batch = w.text
}

// fillLong begins a write of one long frame. A line is not copied.
func (w *writer) fillLong(frame []byte) {
	w.frames, w.text, w.tail = 1, frame, w.framing.after()
	if before := w.framing.before(frame); before != "" {
		w.text = append([]byte(before), frame...)
	}
}

// settle ends a write of which n bytes were accepted. It removes the frames from the
// queue of which at least one byte was accepted.
func (w *writer) settle(n int) {
	begun, end := 0, w.owed
	for ; begun < w.frames && end < n; begun++ {
		frame := w.queue.At(begun).Frame
		end += len(w.framing.before(frame)) + len(frame) + len(w.framing.after())
	}
	w.queue.Drop(begun)
	if w.rest, w.restsTail = nil, ""; n < end {
		w.rest = w.text[n:min(end, len(w.text))]
		if end > len(w.text) {
			w.restsTail = w.tail
		}
	}
	w.writing, w.text = false, nil
	w.relieved = w.queue.Relieved() || w.relieved
}

// refuse accepts no more frames, but does not end run.
func (w *writer) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusing = true
}

// finish accepts no more frames, and ends run. Queued frames are still written.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	w.wake.Signal()
}

// abort stops writing. The caller interrupts a write that is blocked.
func (w *writer) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished, w.aborted = true, true
	w.wake.Signal()
}

// unsent returns the tags of the frames of which no byte was accepted.
func (w *writer) unsent() []transport.Tag {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.Tags()
}
