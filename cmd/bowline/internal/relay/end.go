package relay

import (
	"errors"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// An end is one of the two links of a relay. It has one frame at a time from its link, so a peer that sends too fast waits; what it has no
// room for waits here, and then the other end gets no credit.
type end struct {
	link    transport.Link
	queue   []transport.Outbound
	granted bool // the link may deliver a frame that has not come yet
	arrived inbox
}

// bind makes an end of a link. Wake, of capacity 1, is told that something has come.
func bind(link transport.Link, wake chan struct{}) *end {
	e := &end{link: link, arrived: inbox{wake: wake}}
	link.Bind(&e.arrived)
	return e
}

// grant lets the link deliver the next frame.
func (e *end) grant() {
	if !e.granted {
		e.granted = true
		e.link.Grant(transport.Main, 1)
	}
}

// send sends frames, and keeps those for which there is no room. It returns those that are too long, which are never sent.
func (e *end) send(frames ...transport.Outbound) (tooLong []transport.Tag) {
	e.queue = append(e.queue, frames...)
	for len(e.queue) > 0 {
		err := e.link.Send(e.queue[0])
		if oversized := (*transport.OversizedError)(nil); errors.As(err, &oversized) {
			tooLong = append(tooLong, e.queue[0].Tag)
		} else if err != nil {
			return tooLong // busy, or lost, which the inbox tells
		}
		e.queue = e.queue[1:]
	}
	e.queue = nil
	return tooLong
}

// next returns the next frame that has come; nil if there is none. A frame that was too long is skipped: nobody knows its id.
func (e *end) next() (frame []byte, ok bool) {
	in, ok := e.arrived.take()
	if ok {
		e.granted = false
	}
	return in.Frame, ok
}

// An inbox is the receiver of a link. Its methods do not block: there are never more frames than credit.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	frames []transport.Inbound
	ended  bool            // nothing more comes, though the link lives
	loss   *transport.Loss // the link is gone
}

// note records something and wakes the loop.
func (b *inbox) note(record func()) {
	b.mu.Lock()
	record()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (b *inbox) take() (in transport.Inbound, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) == 0 {
		return in, false
	}
	in, b.frames = b.frames[0], b.frames[1:]
	return in, true
}

// waiting reports whether a frame has come that nobody has taken.
func (b *inbox) waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.frames) > 0
}

// state returns whether the peer sends nothing more, and how the link was lost, once all that has come was taken.
func (b *inbox) state() (ended bool, loss *transport.Loss) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) > 0 {
		return false, nil
	}
	return b.ended, b.loss
}

// Receive implements transport.Receiver.
func (b *inbox) Receive(in transport.Inbound) { b.note(func() { b.frames = append(b.frames, in) }) }

// Writable implements transport.Receiver.
func (b *inbox) Writable() { b.note(func() {}) }

// Ended implements transport.Receiver.
func (b *inbox) Ended() { b.note(func() { b.ended = true }) }

// Lost implements transport.Receiver.
func (b *inbox) Lost(loss transport.Loss) { b.note(func() { b.loss = &loss }) }

// StreamOpened implements transport.Receiver.
func (*inbox) StreamOpened(transport.Stream, transport.Tag) {}

// StreamLost implements transport.Receiver.
func (*inbox) StreamLost(transport.StreamLoss) {}

// Failed implements transport.Receiver. A stream of bytes fails as a whole.
func (*inbox) Failed(transport.Failure) {}
