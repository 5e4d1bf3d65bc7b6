package streamable

import (
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A sendQueue holds the frames of a stream until they are written. They count for their
// client. The link's mu guards it. A GET stream has none before the first frame: push needs
// one, and the other methods do nothing without.
//
// Every byte that is claimed is given back once: by written, whether or not the client got it, by
// drop, or by release for what was only reserved. Room for a short answer is reserved before a request
// is delivered, so that such an answer always fits, however much its client leaves unread.
type sendQueue struct {
	parts.Queue
	link     *serverLink
	reserved int                  // the bytes of small messages that are taken for the last frame, whatever that will be
	large    int                  // the bytes of large messages that are taken for answers which are being encoded
	refused  bool                 // Writable is due
	taken    []transport.Outbound // what take has returned
}

// mostTaken is how many frames a queue has room for that take has returned.
const mostTaken = 16

// reserve takes room for the answer to a request, which may become an error. It reports false if the client has
// too much unread.
func (q *sendQueue) reserve(id jsonrpc.ID) bool {
	n := answerRoom + id.MaxSize()
	if !q.link.unread.Small.Take(q.link.key.Client, n) {
		return false
	}
	q.reserved = n
	return true
}

// reserveLarge takes room for a large answer, before it is encoded. It reports false if the client has too much
// unread.
// An answer that nobody could get is not encoded.
func (q *sendQueue) reserveLarge(n int) bool {
	if n = q.link.unread.Large.Fit(q.link.key.Client, n); !q.link.unread.Large.Take(q.link.key.Client, n) {
		return false
	}
	q.large += n
	return true
}

// isReserved reports whether a frame needs no more than what every answer may have.
func (q *sendQueue) isReserved(o *transport.Outbound) bool {
	return o.Last && len(o.Frame)+frameOverhead <= q.reserved
}

// cost returns the pool from which a frame takes room, and how many bytes.
func (q *sendQueue) cost(o *transport.Outbound) (*share.Pool, int) {
	if q.isReserved(o) {
		return q.link.unread.Small, q.reserved
	}
	return q.link.unread.Of(q.link.key.Client, o.Frame)
}

// claim takes room for a frame, first what is reserved. It reports false if the client has too much unread.
func (q *sendQueue) claim(o *transport.Outbound) bool {
	if q.isReserved(o) {
		q.releaseLarge()
		return true
	}
	pool, bytes := q.link.unread.Of(q.link.key.Client, o.Frame)
	reserved := 0
	if pool == q.link.unread.Large && o.Route.Kind == jsonrpc.KindResult {
		reserved = min(q.large, bytes)
	}
	if !pool.Take(q.link.key.Client, bytes-reserved) {
		return false
	}
	if q.large -= reserved; o.Last {
		q.release()
	}
	return true
}

// release gives back what is reserved.
func (q *sendQueue) release() {
	q.releaseLarge()
	q.link.unread.Small.Give(q.link.key.Client, q.reserved)
	q.reserved = 0
}

func (q *sendQueue) releaseLarge() {
	if q.large > 0 {
		q.link.unread.Large.Give(q.link.key.Client, q.large)
		q.large = 0
	}
}

// push queues a frame. It reports false if the queue is full, or if the client has too
// much unread.
func (q *sendQueue) push(o transport.Outbound) bool {
	fits := q.claim(&o) && q.add(o)
	q.refused = q.refused || !fits
	return fits
}

// add queues a frame for which room was claimed. It reports false if the queue is full.
func (q *sendQueue) add(o transport.Outbound) bool {
	fits := q.Push(o)
	if !fits {
		q.written([]transport.Outbound{o})
	}
	return fits
}

// take removes the oldest frames, as many as one write sends. It reports whether a
// refused frame may fit now. The caller passes them to written afterwards.
//
// The frames are valid until the next call.
func (q *sendQueue) take() (frames []transport.Outbound, relieved bool) {
	if q == nil {
		return nil, false
	}
	frames = q.taken[:0]
	for size := 0; q.Len() > 0; q.Drop(1) {
		o := q.At(0)
		if size += len(o.Frame); size > web.WriteSize && len(frames) > 0 {
			break
		}
		frames = append(frames, o)
	}
	if cap(frames) <= mostTaken {
		q.taken = frames
	}
	return frames, (q.Relieved() || q.Len() == 0) && q.writableDue()
}

// written releases what the frames counted for their client. It needs no lock.
func (q *sendQueue) written(frames []transport.Outbound) {
	for i := range frames {
		pool, bytes := q.cost(&frames[i])
		if pool.Give(q.link.key.Client, bytes); frames[i].Last {
			q.reserved = 0
		}
	}
}

// drop removes all frames, and gives back what is reserved.
func (q *sendQueue) drop() {
	if q == nil {
		return
	}
	for ; q.Len() > 0; q.Drop(1) {
		q.written([]transport.Outbound{q.At(0)})
	}
	q.release()
}

// writableDue reports, once per refusal, that Writable is due.
func (q *sendQueue) writableDue() bool {
	due := q != nil && q.refused
	if due {
		q.refused = false
	}
	return due
}

// streamFrames is how many frames the stream of a request queues. If the client reads,
// there are never so many, however quickly they are sent.
const streamFrames = 16 << 10

func (l *serverLink) newQueue() *sendQueue { return &sendQueue{link: l} }

// newFrames returns a queue for the stream of a request.
func (l *serverLink) newFrames() *sendQueue {
	q := l.newQueue()
	q.Frames = streamFrames
	return q
}
