package streamable

import (
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// stallPatience is how long each piece of a body after the first may take.
const stallPatience = 10 * time.Second

// A pace is the time that a body may take. Each piece that arrives extends the deadline.
//
// It sets deadlines of the connection, so that no goroutine or timer has to watch a body.
type pace struct {
	begun   time.Time
	until   time.Time     // when http.Server.ReadTimeout ends; zero: there is none
	waited  time.Duration // how long nobody could read the body
	pieces  int           // how many pieces are complete
	latest  time.Time     // when the last piece arrived, or reading went on
	control http.ResponseController
}

// newPace returns the pace of a body that is read from now on.
func newPace(expected expectedBody) pace {
	p := pace{begun: time.Now(), control: expected.control}
	if p.begun.Sub(expected.since) < time.Second { // otherwise the checks of the request took that time
		p.latest = p.begun
	}
	if expected.timeout > 0 {
		p.until = p.begun.Add(expected.timeout)
	}
	return p
}

// allow extends the deadline after another piece has arrived.
func (p *pace) allow(arrived int) {
	pieces := arrived / web.PieceSize
	if pieces == p.pieces && !p.latest.IsZero() {
		return
	}
	p.pieces, p.latest = pieces, time.Now()
	// 64 KiB/s on average after the first 30 s, so that a slow but steady client may send anything; and
	// no piece may take longer than stallPatience, so that one that has stopped is noticed soon.
	deadline := p.begun.Add(web.BodyPatience + p.waited + time.Duration(pieces)*time.Second)
	if stalled := p.latest.Add(stallPatience); pieces > 0 && stalled.Before(deadline) {
		deadline = stalled
	}
	p.setDeadline(deadline)
}

// pause excludes a time in which nobody could read the body.
func (p *pace) pause(waited time.Duration) {
	p.waited += waited
	// Then the next allow sets a deadline, even before another piece is complete.
	p.latest = time.Time{}
}

// setDeadline sets the deadline for more bytes, but none after the server's own
// ReadTimeout.
func (p *pace) setDeadline(deadline time.Time) {
	if !p.until.IsZero() && p.until.Before(deadline) {
		deadline = p.until
	}
	p.control.SetReadDeadline(deadline) // has no effect if the writer does not support deadlines
}

// An expectedBody is a body that must begin to arrive within web.BodyPatience.
type expectedBody struct {
	control http.ResponseController
	since   time.Time
	timeout time.Duration // the ReadTimeout of http.Server; 0: there is none
}

// expectBody sets the deadline for the first bytes of a body. If the handler responds
// before it has read the body, net/http would first wait for the rest of the body, to
// reuse the connection. To prevent that, expectBody marks the connection to be closed.
func expectBody(w http.ResponseWriter, r *http.Request) expectedBody {
	control, begun := *http.NewResponseController(w), time.Now()
	timeout := readTimeout(r)
	if r.ContentLength == 0 {
		return expectedBody{control, begun, timeout}
	}
	deadline := web.BodyPatience
	if timeout > 0 {
		deadline = min(deadline, timeout)
	}
	control.SetReadDeadline(begun.Add(deadline)) // has no effect if the writer does not support deadlines
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	return expectedBody{control, begun, timeout}
}

// readTimeout returns http.Server.ReadTimeout, or 0 if there is none.
func readTimeout(r *http.Request) time.Duration {
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		return max(srv.ReadTimeout, 0)
	}
	return 0
}
