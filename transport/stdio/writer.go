package stdio

import (
	"bytes"
	"io"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

// batchSize is how many bytes of queued frames one write takes. A frame of that
// size or more is written by itself; a line, without a copy.
const batchSize = 64 << 10

// A writer writes queued frames, as their framing says, in as few writes as
// possible. A frame stays in the queue until the operating system has accepted a
// byte of it. So the frames left in the queue at the end are unsent.
type writer struct {
	to      io.Writer
	framing Framing
	limit   int // the longest frame, in bytes

	mu       sync.Mutex
	wake     sync.Cond
	queue    queue.Queue
	finished bool // nothing more is accepted
	aborted  bool // nothing more is written

	// The present write; used by run only.
	batch  []byte
	text   []byte // what is written: the batch, or one long frame
	frames int    // how many frames that is, from the head of the queue
	owed   int    // length of the newline that a long frame before them still needs
}

func newWriter(to io.Writer, framing Framing, limit int) *writer {
	w := &writer{to: to, framing: framing, limit: limit}
	w.wake.L = &w.mu
	return w
}

func (w *writer) send(o transport.Outbound) error {
	if len(o.Frame) > w.limit {
		return &transport.OversizedError{Limit: w.limit, Size: len(o.Frame)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return transport.ErrClosed
	}
	if !w.queue.Push(o) {
		return transport.ErrBusy
	}
	if w.framing == Lines {
		flatten(o.Frame)
	}
	w.wake.Signal()
	return nil
}

// flatten replaces newlines by spaces. In JSON both are insignificant.
func flatten(frame []byte) {
	for i := bytes.IndexByte(frame, '\n'); i >= 0; i = bytes.IndexByte(frame, '\n') {
		frame[i] = ' '
		frame = frame[i+1:]
	}
}

// run writes until the writer is finished and its queue empty, until it is
// aborted, or until a write fails, and returns that error. It calls writable when
// a frame that was refused would fit.
func (w *writer) run(writable func()) error {
	defer w.finish()
	for w.collect() {
		n, err := w.to.Write(w.text)
		if w.settle(n) {
			writable()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// collect waits for something to write. It returns false when nothing more will
// come.
func (w *writer) collect() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.Len() == 0 && w.owed == 0 && !w.finished {
		w.wake.Wait()
	}
	if w.aborted {
		return false
	}
	w.frames, w.text = 0, append(w.batch[:0], "\n"[:w.owed]...)
	for w.frames < w.queue.Len() {
		frame := w.queue.At(w.frames).Frame
		if len(w.text)+len(frame) >= batchSize {
			if len(w.text) == 0 {
				w.frames, w.text = 1, frame
				if before := w.framing.before(frame); before != "" {
					w.text = append([]byte(before), frame...)
				}
				return true
			}
			break
		}
		w.text = append(append(append(w.text, w.framing.before(frame)...), frame...), w.framing.after()...)
		w.frames++
	}
	w.batch = w.text
	return len(w.text) > 0
}

// settle removes from the queue the frames of which a byte is among the n that
// were accepted. It reports whether a frame that was refused would fit now.
func (w *writer) settle(n int) (relieved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := 0
	for start := w.owed; sent < w.frames && start < n; sent++ {
		frame := w.queue.At(sent).Frame
		start += len(w.framing.before(frame)) + len(frame) + len(w.framing.after())
	}
	if w.owed = 0; w.frames == 1 && len(w.text) == len(w.queue.At(0).Frame) {
		w.owed = len("\n")
	}
	w.queue.Drop(sent)
	return w.queue.Relieved()
}

// finish accepts no more frames. What is queued is still written.
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

// unsent lists the tags of the frames of which no byte was accepted.
func (w *writer) unsent() []transport.Tag {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.Tags()
}
