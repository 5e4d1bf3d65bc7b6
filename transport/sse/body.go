package sse

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxLarge is how many bodies above web.SmallBody one handler holds.
const maxLarge = 32

// read reads the body of a POST. A session reads one at a time. A body that has turned out to be
// large waits for one of the places, which clients share, so that small ones never wait for
// large ones.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, l *serverLink) ([]byte, *refusal) {
	if r.ContentLength > int64(h.options.MaxBody) {
		return nil, h.tooLarge()
	}
	control := http.NewResponseController(w)
	defer l.bodyDone(control)
	size := min(max(512, r.ContentLength+1), web.SmallBody)
	if r.ContentLength == web.SmallBody {
		size++ // to read up to the end
	}
	begun, frame, isLarge := time.Now(), make([]byte, 0, size), false
	for {
		if latest := len(frame); latest == cap(frame) {
			if !isLarge && latest >= web.SmallBody {
				of, waits := web.ClientOf(l.identity, web.AddressOf(r)), time.Now()
				if refused := h.awaitPlace(r, l, of); refused != nil {
					return nil, refused
				}
				defer h.large.Give(of, 1)
				isLarge, begun = true, begun.Add(time.Since(waits))
			}
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

// awaitPlace takes a place for one more large body, for which the caller calls Give.
func (h *Handler) awaitPlace(r *http.Request, l *serverLink, of share.Client) *refusal {
	claim := h.large.Claim(of, 1)
	if claim == nil {
		return nil
	}
	patience := time.NewTimer(web.BodyPatience)
	defer patience.Stop()
	refused := sessionNotFound
	select {
	case <-claim.Granted():
		return nil
	case <-patience.C:
		refused = &refusal{status: http.StatusServiceUnavailable, text: "too much is waiting to be served"}
	case <-r.Context().Done():
		refused = &refusal{status: http.StatusBadRequest, text: "the body did not arrive as a whole"}
	case <-l.closing:
	}
	claim.Withdraw()
	return refused
}

func (h *Handler) tooLarge() *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body is above the limit of %d bytes", h.options.MaxBody)}
}
