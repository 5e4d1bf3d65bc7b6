package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxLarge is how many bodies above web.SmallBody one handler holds.
const maxLarge = 32

// read reads the body of a POST of a client. A session reads one at a time. A body that has turned out to be
// large waits for one of the places, which clients share, so that small ones never wait for
// large ones. The caller gives the place back.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, l *serverLink, of share.Client) (frame []byte, isLarge bool, refused *refusal) {
	if r.ContentLength > int64(h.options.MaxBody) {
		return nil, false, h.tooLarge()
	}
	control := http.NewResponseController(w)
	defer l.bodyDone(control)
	size := min(max(512, r.ContentLength+1), web.SmallBody)
	if r.ContentLength == web.SmallBody {
		size++ // to read up to the end
	}
	begun := time.Now()
	frame = make([]byte, 0, size)
	for {
		if latest := len(frame); latest == cap(frame) {
			if !isLarge && latest >= web.SmallBody {
				waits := time.Now()
				if refused := h.awaitPlace(r, l, of); refused != nil {
					return nil, false, refused
				}
				isLarge, begun = true, begun.Add(time.Since(waits))
			}
			frame = append(make([]byte, 0, min(2*latest, h.options.MaxBody+1)), frame...)
		}
		l.setReadDeadline(control, begun.Add(web.BodyPatience+time.Duration(len(frame)/web.PieceSize)*time.Second))
		n, err := r.Body.Read(frame[len(frame):cap(frame)])
		frame = frame[:len(frame)+n]
		switch {
		case len(frame) > h.options.MaxBody:
			return nil, isLarge, h.tooLarge()
		case err == io.EOF && len(frame) == 0:
			return nil, isLarge, &refusal{status: http.StatusBadRequest, text: "the body is empty"}
		case err == io.EOF:
			return frame, isLarge, nil
		case l.isOver(): // so the session is what the client has to know about
			return nil, isLarge, sessionNotFound
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, isLarge, &refusal{status: http.StatusRequestTimeout, text: "the body did not arrive in time"}
		case err != nil:
			return nil, isLarge, &refusal{status: http.StatusBadRequest, text: "the body did not arrive as a whole"}
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

// pass delivers one message for one credit. The receiver judges a frame that
// cannot be decoded. Large ones are decoded in turn. A request takes room until it is no longer served.
func (h *Handler) pass(ctx context.Context, l *serverLink, frame []byte, origin *transport.Origin, of share.Client) *refusal {
	in := transport.Inbound{Frame: frame, Origin: origin}
	var m jsonrpc.Message
	var malformed error
	decode := func() { m, malformed = jsonrpc.Decode(frame, jsonrpc.Limits{}) }
	if h.turns.Do(ctx, of, len(frame), nil, decode) != nil {
		return &refusal{status: http.StatusServiceUnavailable, text: "it was not the turn of the client"}
	}
	if malformed == nil {
		if m.Method == protocol.MethodInitialize && len(frame) > web.MaxInitialize {
			return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("initialize is above the limit of %d bytes", web.MaxInitialize)}
		}
		in.Message = &m
	}
	if malformed != nil || m.Kind == jsonrpc.KindRequest { // it may be a batch
		if in.Room = web.TakeRoom(h.served, of, min(len(frame)+int(m.Memory), mostServed)); in.Room == nil {
			return &refusal{status: http.StatusServiceUnavailable, text: "too much is being served"}
		}
	}
	if !l.Credit.Take(ctx.Done(), l.closing) || !l.recv.Tell(func(to transport.Receiver) { to.Receive(in) }) {
		if in.Room != nil {
			in.Room.Release()
		}
		return sessionNotFound
	}
	return nil
}
