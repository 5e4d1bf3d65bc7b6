package streamable

import (
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// An outgoing is a message on its way to the server.
type outgoing struct {
	transport.Outbound
	number uint64        // the position in the order of Send
	stream *clientStream // the stream of a request; nil for other messages
	held   bool          // the queue counts the message
}

// modern reports whether the message itself names its revision.
func (o *outgoing) modern() bool { return o.Route.Version != "" }

// A clientQueue holds messages that are not written yet: at most 256 frames and 16 MiB.
// A frame of any size fits an empty queue. Messages leave it in any order, because
// requests are written concurrently.
// The link's Mu guards it.
type clientQueue struct {
	waiting []*outgoing  // messages that are not started yet, oldest first
	one     [1]*outgoing // memory for one message, because usually there is just one
	frames  int          // how many frames the queue holds, including those being written
	bytes   int          // the size of these frames
	busy    bool         // a frame was refused, and there has not been room for it since
	refused int          // the length of that frame
}

// push adds a message. It reports false if the message does not fit.
func (q *clientQueue) push(o *outgoing) bool {
	if !q.fits(len(o.Frame)) {
		q.busy, q.refused = true, len(o.Frame)
		return false
	}
	q.waiting = append(q.waiting, o)
	q.frames++
	q.bytes += len(o.Frame)
	o.held = true
	return true
}

// pop returns the oldest message that is not started, or nil. The message counts until
// it is released.
func (q *clientQueue) pop() *outgoing {
	if len(q.waiting) == 0 {
		return nil
	}
	o := q.waiting[0]
	// Otherwise the array would keep the message alive.
	q.waiting[0] = nil
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = q.one[:0]
	}
	return o
}

// release releases the room of a message. It reports, once per refusal, that the refused
// frame fits now.
func (q *clientQueue) release(o *outgoing) (relieved bool) {
	if !o.held {
		return false
	}
	o.held = false
	q.frames--
	q.bytes -= len(o.Frame)
	if !q.busy || !q.fits(q.refused) {
		return false
	}
	q.busy = false
	return true
}

func (q *clientQueue) fits(size int) bool {
	return q.frames == 0 || q.frames < parts.DefaultFrames && q.bytes+size <= parts.DefaultBytes
}
