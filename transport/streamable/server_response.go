package streamable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// countedByServer is the size up to which net/http itself adds the length to a response
// that is written at once.
const countedByServer = 2 << 10

// A response is one HTTP response. Send queues frames. The goroutine of the HTTP request
// waits for them and writes them.
//
// It decides nothing: what it becomes, whoever owns it decides, which is an exchange, Main, or a
// replay. It writes the queue until the queue is over or the response is cut, and tells which frames
// have perhaps not arrived. An interrupted write is never taken up again: a client must not see the
// end of a frame without its beginning, nor mistake a response that was broken off for a whole one.
type response struct {
	link      *serverLink
	w         http.ResponseWriter
	control   http.ResponseController
	keepAlive time.Duration
	alarm     *alarm
	values    [3]string  // of headers
	numbered  *numbering // gives ids to its events; nil: they have none

	// Guarded by link.mu.
	queue   *sendQueue
	cut     error         // why the response takes no more frames from the queue; nil if it does
	after   time.Duration // with errPolled: when the client should come back
	over    bool          // the response accepts no more frames, but still writes the queued ones
	writing bool
	stopped bool // the response writes nothing more, not even the rest of a frame

	begun bool // the status was sent; only the request's goroutine uses it
}

func newResponse(l *serverLink, w http.ResponseWriter, keepAlive time.Duration) *response {
	r := new(response)
	r.init(l, w, *http.NewResponseController(w), keepAlive)
	return r
}

func (r *response) init(l *serverLink, w http.ResponseWriter, control http.ResponseController, keepAlive time.Duration) {
	r.link, r.w, r.control, r.keepAlive, r.alarm = l, w, control, keepAlive, l.alarms.take()
}

// forget drops the ResponseWriter and the alarm. Only the stream still refers to the
// response then, and may outlive it.
func (r *response) forget() {
	r.link.alarms.keep(r.alarm)
	r.w, r.control, r.alarm = nil, http.ResponseController{}, nil
}

// signal wakes the request's goroutine.
func (r *response) signal() { r.alarm.signal() }

// interrupt stops the present write and all later ones. What net/http writes at the end
// has a separate deadline. The caller holds link.mu.
func (r *response) interrupt() {
	deadline := time.Now().Add(web.WritePatience)
	// A deadline in the past ends a write at once. It is no option if none is under way: then net/http
	// could not end the response.
	if r.writing {
		deadline = time.Unix(0, 1)
	}
	r.stopped = true
	r.control.SetWriteDeadline(deadline)
	r.signal()
}

// next waits for frames to write. It returns none when the time of the alarm is over. Its error is io.EOF at the end of the
// stream, ErrPeerClosed if the client has disconnected, ErrClosed if the link has ended, or the reason of a cut.
func (r *response) next(ctx context.Context) ([]transport.Outbound, error) {
	for {
		r.link.mu.Lock()
		frames, relieved, err := r.take()
		r.link.mu.Unlock()
		if relieved {
			r.link.recv.Tell(transport.Receiver.Writable)
		}
		if len(frames) > 0 || err != nil || r.alarm.isOver() {
			return frames, err
		}
		select {
		case <-r.alarm.wake:
		case <-ctx.Done():
			return nil, transport.ErrPeerClosed
		}
	}
}

// take takes the frames that are written next, and reports whether Writable is due. The caller holds link.mu.
func (r *response) take() (frames []transport.Outbound, relieved bool, err error) {
	// A client that polls still gets what was queued before: it comes back for the rest.
	if (r.cut == nil || r.cut == errPolled) && !r.link.forced {
		frames, relieved = r.queue.take()
		r.numbered.taken(len(frames))
	}
	switch {
	case len(frames) > 0:
	case r.cut != nil:
		err = r.cut
	case r.over:
		err = io.EOF
	case r.link.ending != nil:
		err = transport.ErrClosed
	}
	return frames, relieved, err
}

// json writes a whole response of one frame. It leaves the deadline of the last write,
// under which net/http flushes.
func (r *response) json(status int, o transport.Outbound) error {
	// Nobody can come back for it, so what is lost is reported.
	r.numbered = nil
	return r.put([]transport.Outbound{o}, o.Frame, func(piece []byte) error {
		if !r.begun {
			r.begun = true
			if status == http.StatusServiceUnavailable {
				r.w.Header().Set("Retry-After", soon)
			}
			r.values[0] = web.TypeJSON
			r.w.Header()["Content-Type"] = r.values[:1:1]
			if len(o.Frame) > countedByServer {
				r.w.Header()["Content-Length"] = []string{strconv.Itoa(len(o.Frame))}
			}
			r.w.WriteHeader(status)
		}
		_, err := r.w.Write(piece)
		return err
	})
}

// begin starts a stream of events.
func (r *response) begin() {
	r.begun = true
	web.SetEventHeaders(r.w.Header(), &r.values)
	r.w.WriteHeader(http.StatusOK)
}

// stream writes frames as events, then those that follow, until the stream ends. While
// there are none, it writes comments. It calls note with the frames before it writes
// them.
func (r *response) stream(ctx context.Context, frames []transport.Outbound, note func([]transport.Outbound)) error {
	defer func() { r.setDeadline(time.Now().Add(web.WritePatience)) }() // for what net/http writes at the end
	opened := r.numbered.isOpened()
	text := r.numbered.opening(frames)
	for {
		note(frames)
		if text = r.numbered.appendEvents(text, frames); len(text) == 0 && !opened {
			text = append(text, web.Comment...)
		}
		opened = false
		if n := len(frames); n > 0 && frames[n-1].Last {
			return r.writeLast(frames, text)
		}
		if err := r.writeEvents(frames, text); err != nil {
			return err
		}
		r.setDeadline(time.Time{}) // otherwise HTTP/2 would reset a quiet stream at the deadline of its last write
		r.alarm.set(r.keepAlive)
		var err error
		frames, err = r.next(ctx)
		switch err {
		case nil:
			text = nil
		case io.EOF:
			return nil
		case errPolled:
			return r.writeEvents(nil, r.numbered.reconnectEvent(r.after))
		default:
			return err
		}
	}
}

// writeEvents writes the text of frames, and flushes.
func (r *response) writeEvents(frames []transport.Outbound, text []byte) error {
	return r.put(frames, text, func(piece []byte) error {
		if _, err := r.w.Write(piece); err != nil {
			return err
		}
		return r.control.Flush()
	})
}

// writeLast writes the text of the last frames, without flushing. net/http sends it
// together with the end of the response.
func (r *response) writeLast(frames []transport.Outbound, text []byte) error {
	return r.put(frames, text, func(piece []byte) error {
		_, err := r.w.Write(piece)
		return err
	})
}

// put writes the text of frames piece by piece, so a slow but steady client has enough
// time for a long frame. If writing fails, or the ResponseWriter panics, put reports the
// frames that were perhaps not written.
func (r *response) put(frames []transport.Outbound, text []byte, write func([]byte) error) (err error) {
	err = transport.ErrPeerClosed
	defer func() {
		if len(frames) > 0 { // otherwise pushMain may be setting the queue
			r.queue.written(frames)
		}
		if err != nil {
			r.lost(frames, err)
		}
	}()
	rest := text
	for piece := range slices.Chunk(text, web.WriteSize) {
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

// writeError distinguishes a client that reads too slowly, a link that has ended, and a
// client that has disconnected.
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

// beginWrite begins a write, unless the response was interrupted. It does so under link.mu: interrupt
// sees either no write, or one whose deadline it can move.
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
	r.control.SetWriteDeadline(time.Now().Add(web.WritePatience)) // a writer without deadlines does not block
	return nil
}

func (r *response) endWrite() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.writing = false
}

// setDeadline sets the deadline for writing. The one of interrupt stays.
func (r *response) setDeadline(deadline time.Time) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if !r.stopped {
		r.control.SetWriteDeadline(deadline)
	}
}

// lost reports frames that were taken from the queue and perhaps not written. If they
// were certainly not written, because the link ended, they are reported with the loss of
// the link.
func (r *response) lost(frames []transport.Outbound, err error) {
	if r.numbered != nil && !r.isGivenUp() {
		return // the frames are stored, and the client may come back for them
	}
	for _, o := range frames {
		switch {
		case o.Tag == 0:
		case err == transport.ErrClosed:
			r.link.addUnsent(o.Tag)
		case r.link.isEnding.Load(): // interrupted: a part may have arrived
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

// canFlush reports whether events can reach the client before the response is complete.
func (r *response) canFlush() bool { return web.CanFlush(r.w) }

// oneLine replaces line breaks, which have no meaning in JSON but would end a line of an
// event.
// It changes the frame itself, which belongs to the link.
func oneLine(frame []byte) []byte {
	if bytes.IndexByte(frame, '\n') < 0 && bytes.IndexByte(frame, '\r') < 0 {
		return frame
	}
	for i, c := range frame {
		if c == '\n' || c == '\r' {
			frame[i] = ' '
		}
	}
	return frame
}
