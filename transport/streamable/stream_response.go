package streamable

import (
	"context"
	"io"
	"net/http"
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

// json is a response of one frame.
func (w *response) json(status int, o transport.Outbound) error {
	err := w.route.write(func() error {
		w.begun = true
		w.Header().Set("Content-Type", typeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(len(o.Frame)))
		w.WriteHeader(status)
		_, err := w.Write(o.Frame)
		return err
	})
	if err != nil {
		err = writeError(err)
		w.route.lost([]transport.Outbound{o}, err)
	}
	return err
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
	for {
		note(frames)
		if err := w.events(frames); err != nil {
			err = writeError(err)
			w.route.lost(frames, err)
			return err
		}
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
	return w.route.write(func() error {
		if _, err := w.Write(eventsOf(frames)); err != nil {
			return err
		}
		return w.route.control.Flush()
	})
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
