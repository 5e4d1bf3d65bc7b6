package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	settle   = 100 * time.Millisecond // after a change, so that changes that belong together are one event
	pace     = 250 * time.Millisecond // between the events of a viewer
	idlePing = 15 * time.Second       // so that a viewer that has gone is noticed
)

// A stream sends server-sent events to one viewer.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// open takes a seat and begins a stream. There is no queue for a seat: who is refused asks again, as the page does. The caller calls leave in the
// end. If ok is false, the request is answered.
func (e *entrance) open(w http.ResponseWriter, r *http.Request) (s stream, leave func(), ok bool) {
	seats := e.seats
	if !e.knows(r) {
		seats = e.guests
	}
	select {
	case seats <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "5")
		fail(w, r, http.StatusServiceUnavailable, fmt.Errorf("%d viewers are here already", MaxViewers))
		return s, nil, false
	}
	leave = func() { <-seats }
	s = stream{w, http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	return s, leave, true
}

// send writes an event. A viewer that does not read in time is dropped: send then fails, and the stream is over.
func (s stream) send(event string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, text)) // JSON in one line, so it cannot hold another event
}

// write sends the text at once: an event that waits in a buffer is one that nobody sees.
func (s stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// await returns when changed is closed or the timer fires, and false when the stream is over.
func (d *Door) await(r *http.Request, changed <-chan struct{}, timer *time.Timer) bool {
	select {
	case <-changed:
		return true
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	case <-d.closing:
		return false
	}
}

// follow calls send at once and after changes, until the viewer has gone: settle after the first change, and not more
// often than pace. Send returns the channel of the next change.
func (d *Door) follow(r *http.Request, s stream, send func() (changed <-chan struct{}, err error)) {
	timer := time.NewTimer(idlePing)
	defer timer.Stop()
	for {
		changed, err := send()
		sent := time.Now()
		for err == nil && !wait.IsClosed(changed) {
			timer.Reset(idlePing)
			if !d.await(r, changed, timer) {
				return
			}
			if !wait.IsClosed(changed) {
				err = s.write(": still here\n\n")
			}
		}
		if timer.Reset(max(settle, pace-time.Since(sent))); err != nil || !d.await(r, nil, timer) {
			return
		}
	}
}

// streamReports sends whole reports, to programs. What has changed between two of them is theirs to find.
func (e *entrance) streamReports(w http.ResponseWriter, r *http.Request) {
	s, leave, ok := e.open(w, r)
	if !ok {
		return
	}
	defer leave()
	e.follow(r, s, func() (<-chan struct{}, error) {
		changed := e.gateway.Changed()
		return changed, s.send("report", e.seen(r, e.look(r.Context(), false)))
	})
}

// streamStderr sends the lines that are there, and with ?follow those that come.
func (e *entrance) streamStderr(w http.ResponseWriter, r *http.Request) {
	log, found := e.gateway.Stderr(r.PathValue("server"))
	if !found {
		fail(w, r, http.StatusNotFound, ErrNoServer)
		return
	}
	s, leave, ok := e.open(w, r)
	if !ok {
		return
	}
	defer leave()
	var last uint64
	send := func() (<-chan struct{}, error) {
		lines, until, changed := log.Read(last)
		last = until
		if len(lines) == 0 {
			return changed, s.control.Flush()
		}
		return changed, s.send("lines", lines)
	}
	if !r.URL.Query().Has("follow") {
		_, _ = send() // the viewer has gone, and there is nobody to tell
		return
	}
	e.follow(r, s, send)
}
