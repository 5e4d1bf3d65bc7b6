package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	// holdPatience is how long a POST may wait for room.
	holdPatience = 30 * time.Second

	// A body may take bodyPatience, and a second more for each slowestBody bytes.
	bodyPatience = 30 * time.Second
	slowestBody  = 64 << 10

	// firstRead is how much room is made for a body before any of it is here.
	firstRead = 64 << 10
)

// A posted is the body of one POST, and what was read of it: a message or, in
// one revision, a batch of them.
type posted struct {
	message // zero for a batch
	batch   bool
	asks    bool // it holds a request, so that an answer is due
	frame   []byte

	held   int // bytes of the budget that are taken for it
	budget *budget
}

// take hands the frame over, which is then not held here any more.
func (p *posted) take() []byte {
	p.release()
	return p.frame
}

func (p *posted) release() {
	p.budget.give(p.held)
	p.held = 0
}

// receive reads and decodes a body, once there is room for it.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (*posted, *refusal) {
	size := min(r.ContentLength, int64(h.options.MaxFrame)+1)
	if size < 0 {
		size = int64(h.options.MaxFrame)
	}
	if size > int64(h.options.MaxFrame) {
		return nil, h.tooLarge()
	}
	p := &posted{held: min(int(size), h.options.MaxHeld), budget: &h.held}
	if !h.hold(r.Context(), p.held) {
		return nil, unavailable(jsonrpc.ID{}, "too much is waiting to be served")
	}
	refused := h.read(p, w, r, int(size))
	if refused == nil {
		refused = p.decode()
	}
	if refused != nil {
		p.release()
		return nil, refused
	}
	return p, nil
}

// hold waits for room. A client that leaves before its body was read is not
// noticed: that is why the waiting is bounded.
func (h *Handler) hold(ctx context.Context, n int) bool {
	c := h.held.claim(n)
	if c == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	return h.held.wait(ctx, h.stopped, c)
}

func (h *Handler) read(p *posted, w http.ResponseWriter, r *http.Request, size int) *refusal {
	control := http.NewResponseController(w)
	patience := bodyPatience + time.Duration(size/slowestBody)*time.Second
	control.SetReadDeadline(time.Now().Add(patience)) // who cannot set one has none
	body := bytes.NewBuffer(make([]byte, 0, min(size, firstRead)+bytes.MinRead))
	_, err := body.ReadFrom(io.LimitReader(r.Body, int64(h.options.MaxFrame)+1))
	if err != nil {
		return h.unreadable(err)
	}
	control.SetReadDeadline(time.Time{})
	if body.Len() > h.options.MaxFrame {
		return h.tooLarge()
	}
	p.frame = body.Bytes()
	if unused := p.held - len(p.frame); unused > 0 {
		p.budget.give(unused)
		p.held -= unused
	}
	return nil
}

func (h *Handler) unreadable(err error) *refusal {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, text: "the body has not come in time"}
	case errors.As(err, &tooLarge):
		return h.tooLarge()
	default:
		return &refusal{status: http.StatusBadRequest, text: "the body has not come as a whole"}
	}
}

func (h *Handler) tooLarge() *refusal {
	text := fmt.Sprintf("the body is above the limit of %d bytes", h.options.MaxFrame)
	return &refusal{status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeInvalidRequest, text: text}
}

func (p *posted) decode() *refusal {
	if p.batch = jsonrpc.IsBatch(p.frame); p.batch {
		return nil // whose it is decides whether it may be one
	}
	m, err := read(p.frame)
	if err != nil {
		return undecodable(err)
	}
	p.message, p.asks = m, m.Kind == jsonrpc.KindRequest
	return nil
}

// decodeBatch looks at the messages of a batch. One that is none is left to
// the receiver, who answers it with the others.
func (p *posted) decodeBatch() *refusal {
	items, err := jsonrpc.DecodeBatch(p.frame, jsonrpc.Limits{})
	if err != nil {
		return undecodable(err)
	}
	for _, item := range items {
		if item.Err != nil && item.Err.ReplyDue() || item.Message.Kind == jsonrpc.KindRequest {
			p.asks = true
		}
	}
	return nil
}

func undecodable(err error) *refusal {
	refused := invalid(jsonrpc.ID{}, "%.200v", err)
	var why *jsonrpc.DecodeError
	if errors.As(err, &why) {
		refused.code = why.Code
		if why.ReplyDue() {
			refused.id = why.ID
		}
	}
	return refused
}
