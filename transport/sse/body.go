package sse

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxLarge is how many bodies above web.SmallBody one handler holds.
const maxLarge = 32

// read reads the body of a POST. A session reads one at a time. A body that may be
// large waits until there are fewer of them, so that small ones never wait for
// large ones.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, l *serverLink) ([]byte, *refusal) {
	if r.ContentLength > int64(h.options.MaxBody) {
		return nil, h.tooLarge()
	}
	if r.ContentLength < 0 || r.ContentLength > web.SmallBody {
		if refused := h.awaitRoom(r, l); refused != nil {
			return nil, refused
		}
		defer func() { <-h.large }()
	}
	control := http.NewResponseController(w)
	defer l.bodyDone(control)
	begun, frame := time.Now(), make([]byte, 0, max(512, r.ContentLength+1))
	for {
		if latest := len(frame); latest == cap(frame) {
			frame = append(make([]byte, 0, min(2*latest, h.options.MaxBody+1)), frame...)
		}
		l.setReadDeadline(control, begun.Add(web.BodyPatience+time.Duration(len(frame)/web.PieceSize)*time.Second))
		n, err := r.Body.Read(frame[len(frame):cap(frame)])
		frame = frame[:len(frame)+n]
		switch {
		case len(frame) > h.options.MaxBody:
			return nil, h.tooLarge()
		case err == io.EOF && len(frame) == 0:
			return nil, &refusal{status: http.StatusBadRequest, text: "the body is empty"}
		case err == io.EOF:
			return frame, nil
		case err != nil && l.isOver(): // so the session is what the client has to know about
			return nil, sessionNotFound
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &refusal{status: http.StatusRequestTimeout, text: "the body did not arrive in time"}
		case err != nil:
			return nil, &refusal{status: http.StatusBadRequest, text: "the body did not arrive as a whole"}
		}
	}
}

// awaitRoom waits until one more large body can be held.
func (h *Handler) awaitRoom(r *http.Request, l *serverLink) *refusal {
	patience := time.NewTimer(web.BodyPatience)
	defer patience.Stop()
	select {
	case h.large <- struct{}{}:
		return nil
	case <-patience.C:
		return &refusal{status: http.StatusServiceUnavailable, text: "too much is waiting to be served"}
	case <-r.Context().Done():
		return &refusal{status: http.StatusBadRequest, text: "the body did not arrive as a whole"}
	case <-l.closing:
		return sessionNotFound
	}
}

func (h *Handler) tooLarge() *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body is above the limit of %d bytes", h.options.MaxBody)}
}
