package streamable

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// A response writes what a route holds. It is used by the goroutine of its
// request only.
type response struct {
	http.ResponseWriter
	route     *route
	keepAlive time.Duration
	begun     bool // its status is out
}

// json is a response of one frame. Its last write keeps its deadline, under
// which net/http flushes it.
func (w *response) json(status int, o transport.Outbound) error {
	return w.put([]transport.Outbound{o}, func() error {
		return w.inPieces(o.Frame, func(piece []byte) error {
			if !w.begun {
				w.begun = true
				w.Header().Set("Content-Type", typeJSON)
				w.Header().Set("Content-Length", strconv.Itoa(len(o.Frame)))
				w.WriteHeader(status)
			}
			_, err := w.Write(piece)
			return err
		})
	})
}

// begin makes it a stream of events.
func (w *response) begin() {
	w.begun = true
	w.Header().Set("Content-Type", typeStream)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

// stream writes frames as events, and what follows them, to the end of the
// route. Without frames it writes a comment. Each is noted before it is written.
func (w *response) stream(ctx context.Context, frames []transport.Outbound, note func([]transport.Outbound)) error {
	quiet := time.NewTimer(w.keepAlive)
	defer quiet.Stop()
	defer func() { w.route.limit(time.Now().Add(writePatience)) }() // of what net/http ends it with
	for {
		note(frames)
		if err := w.put(frames, func() error { return w.events(frames) }); err != nil {
			return err
		}
		w.route.limit(time.Time{})
		quiet.Reset(w.keepAlive)
		next, err := w.route.next(ctx, quiet.C)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		frames = next
	}
}

func (w *response) events(frames []transport.Outbound) error {
	return w.inPieces(eventsOf(frames), func(piece []byte) error {
		if _, err := w.Write(piece); err != nil {
			return err
		}
		return w.route.control.Flush()
	})
}

// put has frames written, and tells of those that perhaps were not: also when
// the ResponseWriter panics.
func (w *response) put(frames []transport.Outbound, write func() error) (err error) {
	err = transport.ErrPeerClosed
	defer func() {
		if err != nil {
			w.route.lost(frames, err)
		}
	}()
	return writeError(write())
}

// inPieces gives each piece a time of its own, so that a client that is slow,
// but steady, gets all of a long frame.
func (w *response) inPieces(text []byte, write func([]byte) error) error {
	rest := text
	for piece := range slices.Chunk(text, batchSize) {
		err := w.route.write(func() error { return write(piece) })
		if err == transport.ErrClosed && len(rest) < len(text) {
			return os.ErrDeadlineExceeded // as when a write is interrupted: some may have arrived
		}
		if err != nil {
			return err
		}
		rest = rest[len(piece):]
	}
	return nil
}

// canFlush reports whether events reach the client before the response is
// complete. It looks for what http.ResponseController would use.
func canFlush(w http.ResponseWriter) bool {
	for {
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

func eventsOf(frames []transport.Outbound) []byte {
	size := len(comment)
	for _, o := range frames {
		size += len("data: \n\n") + len(o.Frame)
	}
	text := make([]byte, 0, size)
	for _, o := range frames {
		text = eventstream.Append(text, eventstream.Event{Data: oneLine(o.Frame)})
	}
	if len(frames) == 0 {
		text = append(text, comment...)
	}
	return text
}

// comment keeps a quiet stream open.
const comment = ":\n\n"

// oneLine replaces line breaks, which in JSON are only ever insignificant, and
// in an event are not.
func oneLine(frame []byte) []byte {
	for i, c := range frame {
		if c == '\n' || c == '\r' {
			frame[i] = ' '
		}
	}
	return frame
}
