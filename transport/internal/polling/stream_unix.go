//go:build unix

package polling

import (
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Reader reads from a non-blocking pipe or socket. One goroutine at a time may read.
type Reader struct {
	from  syscall.RawConn
	call  func(descriptor uintptr) bool // created once, because each closure would be an allocation
	group *Group                        // nil: the reader always may poll

	nowait   nowait
	poller   poller
	tried    bool          // the present read has found nothing at first
	streak   int           // consecutive empty reads in the group that were this reader's
	since    time.Time     // when it took over from another reader of the group; zero once aloneFor has passed
	hastened atomic.Uint32 // counts calls of hasten
	seen     uint32        // that count when the read began
	into     []byte
	n        int
	err      error
}

// NewReader returns a reader of a pipe or socket that does not block.
func NewReader(from syscall.RawConn) *Reader { return newReader(from, nil, pipePolls) }

func newReader(from syscall.RawConn, group *Group, polls int) *Reader {
	r := &Reader{from: from, group: group, poller: newPoller(processors(), polls)}
	r.call = r.readFrom
	return r
}

// Read implements io.Reader. Before it waits, it polls, unless p has a single byte: then
// the caller only watches whether the peer is still there.
func (r *Reader) Read(p []byte) (int, error) {
	r.into, r.n, r.err, r.tried, r.seen = p, 0, nil, false, r.hastened.Load()
	err := r.from.Read(r.call)
	r.into = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, r.err
	case r.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// readFrom returns false to wait until there is something to read.
func (r *Reader) readFrom(descriptor uintptr) bool {
	for {
		n, err := r.nowait.read(descriptor, r.into)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			r.tried = true
			if !r.mayPoll() {
				r.poller.stop()
				return false
			}
			if !r.poller.again() {
				return false
			}
		default:
			r.found()
			r.n, r.err = max(n, 0), err
			return true
		}
	}
}

// mayPoll reports whether the reader may poll, which can change while it does.
func (r *Reader) mayPoll() bool {
	return len(r.into) > 1 && r.hastened.Load() == r.seen && (r.group == nil || r.streak >= minStreak && r.group.last.Load() == r && r.isAlone())
}

// isAlone reports whether no other reader of the group has found anything for a while.
func (r *Reader) isAlone() bool {
	if !r.since.IsZero() && time.Since(r.since) >= aloneFor {
		r.since = time.Time{}
	}
	return r.since.IsZero()
}

// found notes that a read has found something. A long message takes many reads, of which
// only the first one counts for the group, since the others find something immediately.
func (r *Reader) found() {
	r.poller.found()
	switch {
	case r.group == nil || !r.tried:
	case r.group.last.Load() == r:
		r.streak++
	default:
		r.streak, r.since = 0, time.Now()
		r.group.last.Store(r)
	}
}

// hasten makes the present read stop polling. It is called after a deadline has changed and
// before the file is closed, which a read notices only when it waits.
func (r *Reader) hasten() { r.hastened.Add(1) }

// A Writer writes to a non-blocking pipe or socket. One goroutine at a time may write.
type Writer struct {
	to   syscall.RawConn
	call func(descriptor uintptr) bool // created once, because each closure would be an allocation

	nowait  nowait
	text    []byte
	written int
	err     error
}

// NewWriter returns a writer to a pipe or socket that does not block.
func NewWriter(to syscall.RawConn) *Writer {
	w := &Writer{to: to}
	w.call = w.writeTo
	return w
}

// Write writes as much as the operating system accepts immediately, which may be nothing.
// That is no error.
func (w *Writer) Write(text []byte) (n int, err error) {
	w.text, w.written, w.err = text, 0, nil
	err = w.to.Write(w.call)
	w.text = nil
	if err == nil {
		err = w.err
	}
	return w.written, err
}

// writeTo always returns true, because it waits for nothing.
func (w *Writer) writeTo(descriptor uintptr) bool {
	for {
		n, err := w.nowait.write(descriptor, w.text)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return true
		default:
			w.written, w.err = max(n, 0), err
			return true
		}
	}
}
