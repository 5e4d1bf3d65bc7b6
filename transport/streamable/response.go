package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

const (
	// writeSize is how many bytes of queued frames go out in one write. A longer
	// frame takes several.
	writeSize = 64 << 10

	// writePatience is how long one write may take.
	writePatience = 30 * time.Second

	// countedByServer is the size up to which net/http itself adds the length to a
	// response of one write.
	countedByServer = 2 << 10
)

// errCannotFlush is a program's mistake: middleware that hides http.Flusher.
var errCannotFlush = errors.New("streamable: the ResponseWriter cannot flush, which a stream of events requires")

// A response is one HTTP response. Send queues frames; the goroutine of the HTTP
// request waits for them and writes them.
type response struct {
	link      *serverLink
	w         http.ResponseWriter
	control   http.ResponseController
	keepAlive time.Duration
	wake      chan struct{} // holds one
	begun     bool          // the status is out; only the request's goroutine uses it
	values    [3]string     // of headers
	numbered  *numbering    // of the events that it writes; nil: they have no ids
	missing   uint64        // events that a replay has left out; only the request's goroutine uses it

	// Guarded by link.mu.
	queue   *sendQueue
	asked   bool          // events are wanted now, also if there is no frame yet
	over    bool          // no more frames are accepted; what is queued is still written
	cut     error         // why no more frames are taken from the queue
	after   time.Duration // when the client should come back; with errPolled
	writing bool
	stopped bool // nothing more is written, not even the rest of a frame
}

func newResponse(l *serverLink, w http.ResponseWriter, keepAlive time.Duration) *response {
	r := new(response)
	r.init(l, w, *http.NewResponseController(w), keepAlive)
	return r
}

func (r *response) init(l *serverLink, w http.ResponseWriter, control http.ResponseController, keepAlive time.Duration) {
	r.link, r.w, r.control, r.keepAlive, r.wake = l, w, control, keepAlive, make(chan struct{}, 1)
}

// forget lets go of the ResponseWriter. Nothing refers to the response any more but
// its stream, which may outlive it.
func (r *response) forget() { r.w, r.control = nil, http.ResponseController{} }

// signal makes the request's goroutine look again.
func (r *response) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// interrupt stops the write under way and all later ones. What net/http writes at
// the end has its time. The caller holds link.mu.
func (r *response) interrupt() {
	deadline := time.Now().Add(writePatience)
	if r.writing {
		deadline = time.Unix(0, 1)
	}
	r.stopped = true
	r.control.SetWriteDeadline(deadline)
	r.signal()
}

// next waits for frames to write. It returns none when quiet fires, and when events
// are asked for. Its error is
// io.EOF at the end of the stream, ErrPeerClosed when the client has left,
// ErrClosed when the link is over, or the reason of a cut.
func (r *response) next(ctx context.Context, quiet <-chan time.Time) ([]transport.Outbound, error) {
	for {
		frames, asked, err := r.take()
		if len(frames) > 0 || asked || err != nil {
			return frames, err
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil, transport.ErrPeerClosed
		case <-quiet:
			return nil, nil
		}
	}
}

func (r *response) take() (frames []transport.Outbound, asked bool, err error) {
	l := r.link
	l.mu.Lock()
	relieved := false
	if (r.cut == nil || r.cut == errPolled) && !l.forced {
		frames, relieved = r.queue.take()
		r.numbered.taken(len(frames))
	}
	switch {
	case len(frames) > 0:
	case r.cut != nil:
		err = r.cut
	case r.over:
		err = io.EOF
	case l.reason != nil:
		err = transport.ErrClosed
	case r.asked:
		r.asked, asked = false, true
	}
	l.mu.Unlock()
	if relieved {
		l.told.Tell(transport.Receiver.Writable)
	}
	return frames, asked, err
}

// json writes a whole response of one frame. The last write keeps its deadline,
// under which net/http flushes it.
func (r *response) json(status int, o transport.Outbound) error {
	r.numbered = nil
	return r.put([]transport.Outbound{o}, o.Frame, func(piece []byte) error {
		if !r.begun {
			r.begun = true
			if status == http.StatusServiceUnavailable {
				r.w.Header().Set("Retry-After", soon)
			}
			r.w.Header()["Content-Type"] = r.value(0, typeJSON)
			if len(o.Frame) > countedByServer {
				r.w.Header()["Content-Length"] = []string{strconv.Itoa(len(o.Frame))}
			}
			r.w.WriteHeader(status)
		}
		_, err := r.w.Write(piece)
		return err
	})
}

// value returns the value of a header. The n-th needs no memory beyond the response.
func (r *response) value(n int, value string) []string {
	r.values[n] = value
	return r.values[n : n+1 : n+1]
}

// begin makes it a stream of events.
func (r *response) begin() {
	r.begun = true
	header := r.w.Header()
	header["Content-Type"] = r.value(0, typeEvents)
	header["Cache-Control"] = r.value(1, "no-cache")
	header["X-Accel-Buffering"] = r.value(2, "no")
	r.w.WriteHeader(http.StatusOK)
}

// stream writes frames as events, then those that follow, to the end of the
// stream. It writes a comment where it has no frames. note is called with the
// frames before they are written.
func (r *response) stream(ctx context.Context, frames []transport.Outbound, note func([]transport.Outbound)) error {
	quiet := time.NewTimer(r.keepAlive)
	defer quiet.Stop()
	defer func() { r.setDeadline(time.Now().Add(writePatience)) }() // for what net/http writes at the end
	opened := r.numbered.isOpened()
	text := r.numbered.opening(len(frames))
	for {
		note(frames)
		if text = r.numbered.appendEvents(text, frames); len(text) == 0 && !opened {
			text = append(text, comment...)
		}
		opened = false
		if n := len(frames); n > 0 && frames[n-1].Last {
			return r.writeLast(frames, text)
		}
		if err := r.writeEvents(frames, text); err != nil {
			return err
		}
		r.setDeadline(time.Time{}) // HTTP/2 would reset a quiet stream at the deadline of its last write
		quiet.Reset(r.keepAlive)
		var err error
		frames, err = r.next(ctx, quiet.C)
		switch err {
		case nil:
			text = nil
		case io.EOF:
			return nil
		case errPolled:
			return r.writeEvents(nil, r.numbered.goodbye(r.after))
		default:
			return err
		}
	}
}

// writeEvents writes the text of frames, and whatever net/http holds back.
func (r *response) writeEvents(frames []transport.Outbound, text []byte) error {
	return r.put(frames, text, func(piece []byte) error {
		if _, err := r.w.Write(piece); err != nil {
			return err
		}
		return r.control.Flush()
	})
}

// writeLast writes the text of the last frames. net/http sends it together with the end
// of the response.
func (r *response) writeLast(frames []transport.Outbound, text []byte) error {
	return r.put(frames, text, func(piece []byte) error {
		_, err := r.w.Write(piece)
		return err
	})
}

// put writes the text of frames, piece by piece: a client that is slow but steady
// has time for all of a long frame. It reports frames that were perhaps not
// written, also when the ResponseWriter panics.
func (r *response) put(frames []transport.Outbound, text []byte, write func([]byte) error) (err error) {
	err = transport.ErrPeerClosed
	defer func() {
		if r.queue.written(frames); err != nil {
			r.lost(frames, err)
		}
	}()
	rest := text
	for piece := range slices.Chunk(text, writeSize) {
		err := r.writePiece(piece, write)
		if err == transport.ErrClosed && len(rest) < len(text) {
			err = os.ErrDeadlineExceeded // as after an interrupted write: part of it may have arrived
		}
		if err != nil {
			return writeError(err)
		}
		rest = rest[len(piece):]
	}
	return nil
}

// writeError tells a client that takes too little, or a link that is over, from a
// client that has left.
func writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || err == transport.ErrClosed || err == ErrNotReading {
		return err
	}
	return transport.ErrPeerClosed
}

func (r *response) writePiece(piece []byte, write func([]byte) error) error {
	if err := r.beginWrite(); err != nil {
		return err
	}
	defer r.endWrite()
	return write(piece)
}

func (r *response) beginWrite() error {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	switch {
	case !r.stopped:
	case r.cut != nil:
		return r.cut
	default:
		return transport.ErrClosed
	}
	r.writing = true
	r.control.SetWriteDeadline(time.Now().Add(writePatience)) // a writer that cannot set one does not block
	return nil
}

func (r *response) endWrite() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.writing = false
}

func (r *response) setDeadline(deadline time.Time) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if !r.stopped {
		r.control.SetWriteDeadline(deadline)
	}
}

// lost reports frames that were taken to be written and perhaps were not. Those
// that surely were not, because the link is over, are reported with its loss.
func (r *response) lost(frames []transport.Outbound, err error) {
	if r.numbered != nil && !r.isGivenUp() {
		return // they are kept, and the client may come for them
	}
	for _, o := range frames {
		switch {
		case o.Tag == 0:
		case err == transport.ErrClosed:
			r.link.addUnsent(o.Tag)
		case r.link.isEnding.Load(): // interrupted: it may have arrived
		default:
			r.link.failed(o.Tag, err, false)
		}
	}
}

// isGivenUp reports whether the stream ends with this response.
func (r *response) isGivenUp() bool {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	return r.cut == ErrNotReading
}

// canFlush reports whether events can reach the client before the response is
// complete. It looks where http.ResponseController looks.
func (r *response) canFlush() bool {
	for w := r.w; ; {
		switch t := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// comment keeps a quiet event stream open.
const comment = ":\n\n"

// oneLine replaces line breaks: they mean nothing in JSON, and end a line of an
// event.
func oneLine(frame []byte) []byte {
	for i, c := range frame {
		if c == '\n' || c == '\r' {
			frame[i] = ' '
		}
	}
	return frame
}

// A sendQueue holds the frames of a stream until they are written, and has them
// charged to their client. The link's mu guards it.
type sendQueue struct {
	queue.Queue
	unread  *unread
	client  client
	refused bool // Writable is due

	queued, taken [1]transport.Outbound // room for the one frame that most responses are
}

// push queues a frame, unless the queue or the account of the client is full.
func (q *sendQueue) push(o transport.Outbound) bool {
	account, bytes := q.unread.account(o.Frame)
	fits := account.charge(q.client, bytes)
	if fits && !q.Push(o) {
		account.credit(q.client, bytes)
		fits = false
	}
	q.refused = q.refused || !fits
	return fits
}

// take removes the oldest frames, as many as go out in one write, and reports
// whether a refused frame may fit now. The caller returns them to written.
//
// The frames are valid until the next call.
func (q *sendQueue) take() (frames []transport.Outbound, relieved bool) {
	frames = q.taken[:0]
	for size := 0; q.Len() > 0; q.Drop(1) {
		o := q.At(0)
		if size += len(o.Frame); size > writeSize && len(frames) > 0 {
			break
		}
		frames = append(frames, o)
	}
	return frames, (q.Relieved() || q.Len() == 0) && q.writableDue()
}

// written gives back what frames were charged. It needs no lock.
func (q *sendQueue) written(frames []transport.Outbound) {
	for _, o := range frames {
		account, bytes := q.unread.account(o.Frame)
		account.credit(q.client, bytes)
	}
}

// drop forgets all frames.
func (q *sendQueue) drop() {
	for ; q.Len() > 0; q.Drop(1) {
		q.written([]transport.Outbound{q.At(0)})
	}
}

// writableDue reports, once per refusal, that Writable is due.
func (q *sendQueue) writableDue() bool {
	due := q.refused
	q.refused = false
	return due
}
