package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	// holdPatience is how long a POST may wait for room.
	holdPatience = 30 * time.Second

	// A body may take bodyPatience, and a second more for each pieceSize bytes
	// of it that have come.
	bodyPatience = 30 * time.Second
	pieceSize    = 64 << 10

	// firstRead is how much room is made for a body before any of it is here.
	firstRead = 64 << 10
)

// A posted is the body of one POST, and what was read of it: a message or, in
// one revision, a batch of them.
type posted struct {
	message // zero for a batch
	origin  *transport.Origin
	batch   bool
	asks    bool // it holds a request, so that an answer is due
	frame   []byte

	held   int           // bytes of the budget that are taken for it
	waited time.Duration // for those
	budget *budget
}

// take hands the message over. Nothing of it is held here any more.
func (p *posted) take() transport.Inbound {
	in := transport.Inbound{Frame: p.frame, Origin: p.origin}
	if !p.batch {
		m := p.Message
		in.Message = &m
	}
	p.frame, p.message = nil, message{}
	p.release()
	return in
}

func (p *posted) release() {
	p.budget.give(p.held)
	p.held = 0
}

// expectBody gives a body its first time. Until it has been read, net/http must
// not wait for it before it sends a response: that needs a connection which is
// then closed.
func expectBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience)) // who cannot set one has none
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// hasBody takes back what was due for as long as the body was not read.
func hasBody(w http.ResponseWriter) {
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	w.Header().Del("Connection")
}

// receive reads and decodes a body, as there is room for it.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (*posted, *refusal) {
	if r.ContentLength > int64(h.options.MaxFrame) {
		return nil, h.tooLarge()
	}
	p := &posted{budget: &h.held, origin: originOf(r, h.identify(r))}
	refused := h.read(p, w, r)
	if refused == nil {
		refused = p.decode()
	}
	if refused != nil {
		p.release()
		return nil, refused
	}
	return p, nil
}

// read reads a body. Room is claimed as it comes, twice as much each time, so
// that one who announces a body and does not send it takes little; and each
// piece gives it time for another.
func (h *Handler) read(p *posted, w http.ResponseWriter, r *http.Request) *refusal {
	limit := h.options.MaxFrame + 1
	if r.ContentLength >= 0 {
		limit = int(r.ContentLength) + 1 // one more, to meet the end
	}
	control := http.NewResponseController(w)
	begun, patience := time.Now(), bodyPatience
	for {
		if len(p.frame) == cap(p.frame) && !h.grow(r.Context(), p, control, limit) {
			return unavailable(jsonrpc.ID{}, "too much is waiting to be served")
		}
		if earned := p.patience(); earned > patience {
			patience = earned
			control.SetReadDeadline(begun.Add(patience))
		}
		n, err := r.Body.Read(p.frame[len(p.frame):cap(p.frame)])
		p.frame = p.frame[:len(p.frame)+n]
		switch {
		case len(p.frame) == limit:
			return h.tooLarge()
		case err == io.EOF:
			hasBody(w)
			p.keep(len(p.frame))
			return nil
		case err != nil:
			return h.unreadable(err)
		}
	}
}

// patience is how long the body may take, from its beginning, until more of it
// has come.
func (p *posted) patience() time.Duration {
	return bodyPatience + p.waited + time.Duration(len(p.frame)/pieceSize)*time.Second
}

// grow makes room for more of a body.
func (h *Handler) grow(ctx context.Context, p *posted, control *http.ResponseController, limit int) bool {
	size := min(limit, max(firstRead, 2*cap(p.frame)))
	if !h.hold(ctx, p, control, min(size, h.options.MaxHeld)-p.held) {
		return false
	}
	p.frame = append(make([]byte, 0, size), p.frame...)
	return true
}

// hold waits for more room. Bodies that have come in part may all wait for each
// other, and a client that leaves before its body was read is not noticed: that
// is why the waiting for one body is bounded.
func (h *Handler) hold(ctx context.Context, p *posted, control *http.ResponseController, more int) bool {
	if more <= 0 {
		return true // a body above all room there is has that to itself
	}
	if c := h.held.claim(more); c != nil {
		begun := time.Now()
		control.SetReadDeadline(begun.Add(holdPatience + bodyPatience)) // the client is not waited for
		ctx, cancel := context.WithTimeout(ctx, holdPatience-p.waited)
		defer cancel()
		if !h.held.wait(ctx, h.stopped, c) {
			return false
		}
		p.waited += time.Since(begun)
	}
	p.held += more
	return true
}

// keep gives back what is held beyond n bytes.
func (p *posted) keep(n int) {
	if unused := p.held - n; unused > 0 {
		p.budget.give(unused)
		p.held = n
	}
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
