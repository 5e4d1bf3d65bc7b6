package streamable

import (
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

// An outgoing is a frame on its way to the server.
type outgoing struct {
	transport.Outbound
	number   uint64    // in the order of Send
	exchange *exchange // what a request has opened
	held     bool      // it counts against the outbox
}

// modern reports whether the message says by itself which revision it speaks.
func (o *outgoing) modern() bool { return o.Route.Version != "" }

// An outbox holds frames that are not written yet, within the bounds of a
// queue. A frame of any size fits an empty one. Unlike a queue's, frames leave
// it in any order: requests are written side by side.
type outbox struct {
	waiting []*outgoing // not started, oldest first
	frames  int         // held, those being written included
	bytes   int         // of them
	busy    bool        // a frame was refused, and has not fitted since
	refused int         // its length
}

func (b *outbox) push(o *outgoing) {
	b.waiting = append(b.waiting, o)
	b.frames++
	b.bytes += len(o.Frame)
	o.held = true
}

// pop takes the oldest frame that waits; it is held until it is released.
func (b *outbox) pop() *outgoing {
	if len(b.waiting) == 0 {
		return nil
	}
	o := b.waiting[0]
	b.waiting[0] = nil
	if b.waiting = b.waiting[1:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	return o
}

// release lets a frame go, and reports, once per refusal, that the refused
// frame would fit now.
func (b *outbox) release(o *outgoing) (relieved bool) {
	if !o.held {
		return false
	}
	o.held = false
	b.frames--
	b.bytes -= len(o.Frame)
	if !b.busy || !b.fits(b.refused) {
		return false
	}
	b.busy = false
	return true
}

// refuse notes that a frame of that size did not fit.
func (b *outbox) refuse(size int) { b.busy, b.refused = true, size }

func (b *outbox) fits(size int) bool {
	return b.frames == 0 || b.frames < queue.DefaultFrames && b.bytes+size <= queue.DefaultBytes
}
