package parts

import "github.com/bowline-mcp/bowline/transport"

const (
	DefaultFrames = 256
	DefaultBytes  = DefaultMaxFrame
)

// An empty queue keeps its slots if there are few. It frees more slots only after it has
// been empty 64 times in a row without having used a fourth of them, because many senders
// would soon need them again. There are never more slots than Frames.
const (
	few     = 16
	emptied = 64
)

// A Queue holds outbound frames, oldest first, within two bounds. One frame of any
// size fits an empty queue. A Queue is not safe for concurrent use.
type Queue struct {
	Frames int // the maximum number of frames; default: 256
	Bytes  int // the maximum sum of their lengths; default: 16 MiB

	slots   []transport.Outbound
	head    int // the index of the oldest frame
	bytes   int
	longest int  // how many frames it has held since it was empty
	unused  int  // how often in a row it has used less than a fourth of its slots
	busy    bool // a frame was refused, and there has not been room for it since
	refused int  // the length of that frame
}

// Begin gives an empty queue its first slots, so that it need not allocate them.
func (q *Queue) Begin(slots []transport.Outbound) { q.slots = slots[:0] }

// Len returns the number of frames.
func (q *Queue) Len() int { return len(q.slots) - q.head }

// Size returns the sum of the lengths of the frames.
func (q *Queue) Size() int { return q.bytes }

// At returns frame i. The oldest has index 0.
func (q *Queue) At(i int) transport.Outbound { return q.slots[q.head+i] }

// Push adds a frame. It returns false when the frame does not fit.
func (q *Queue) Push(o transport.Outbound) bool {
	if !q.fits(len(o.Frame)) {
		q.busy, q.refused = true, len(o.Frame)
		return false
	}
	if len(q.slots) == cap(q.slots) && q.head > len(q.slots)/2 {
		q.compact()
	}
	q.slots = append(q.slots, o)
	q.longest = max(q.longest, q.Len())
	q.bytes += len(o.Frame)
	return true
}

// Drop removes the n oldest frames.
func (q *Queue) Drop(n int) {
	for range n {
		q.bytes -= len(q.slots[q.head].Frame)
		q.slots[q.head] = transport.Outbound{}
		q.head++
	}
	if q.Len() > 0 {
		return
	}
	used, size := q.longest, cap(q.slots)
	q.slots, q.head, q.longest = q.slots[:0], 0, 0
	if q.unused++; used >= size/4 {
		q.unused = 0
	}
	if size > few && q.unused == emptied {
		q.slots, q.unused = nil, 0
	}
}

// Relieved reports, once per refusal, that the refused frame would fit now.
func (q *Queue) Relieved() bool {
	if !q.busy || !q.fits(q.refused) {
		return false
	}
	q.busy = false
	return true
}

// Tags lists the tags of the frames, oldest first, without zero tags.
func (q *Queue) Tags() []transport.Tag {
	var tags []transport.Tag
	for _, o := range q.slots[q.head:] {
		if o.Tag != 0 {
			tags = append(tags, o.Tag)
		}
	}
	return tags
}

func (q *Queue) fits(size int) bool {
	return q.Len() == 0 || q.Len() < or(q.Frames, DefaultFrames) && q.bytes+size <= or(q.Bytes, DefaultBytes)
}

func (q *Queue) compact() {
	n := copy(q.slots, q.slots[q.head:])
	clear(q.slots[n:])
	q.slots, q.head = q.slots[:n], 0
}

func or(bound, standard int) int {
	if bound > 0 {
		return bound
	}
	return standard
}
