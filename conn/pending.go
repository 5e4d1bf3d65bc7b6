//bowline:pure

package conn

import (
	"container/heap"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A request is a request of this side that has not ended. Its deadline and its place in the heap
// belong together: only pending changes them.
type request struct {
	id        int64
	call      *call
	silent    bool             // do not send a cancellation for it
	sent      bool             // the link has its frame
	streaming bool             // it stays open until either side ends it
	stream    transport.Stream // the stream that carries its answer
	via       transport.Stream // the stream that it is sent on: that of the peer's request to which it belongs, or Main
	deadline  instant          // when it times out; 0: never
	timeout   time.Duration    // the timeout that progress restarts; 0 if progress does not restart it
	limit     instant          // the latest deadline; 0 without a deadline
	remaining time.Duration    // the time that was left when the timeout was suspended
	suspended bool             // its timeout does not run, because the peer waits for answers to requests that it made for this one
	probe     bool             // no caller waits for it
	position  int              // its index in pending.byDeadline; -1 if it is not there
}

// isCall reports whether a caller waits for an answer of the peer's: the request is neither a
// probe nor one that stays open.
func (r *request) isCall() bool { return !r.streaming && !r.probe }

// pending holds the requests that have not ended, by id and by deadline. Each request is in byID,
// and those with a deadline are in byDeadline, too. What take returns is a copy, since the
// request itself is reused by the next call.
type pending struct {
	byID       map[int64]*request
	byDeadline requestHeap
	free       []*request // ended requests for reuse; at most keepRequests
	calls      int        // how many of the requests are calls, see request.isCall
}

// maxFree is the largest memory that a core gives to others when it parks: how many requests, or
// streams that are owed credit.
const maxFree = 64

// keepRequests is how many ended requests a busy core keeps for reuse: the default of
// Options.SendSlots.
const keepRequests = 1024

// park gives up the memory that is kept for later requests, if there are none now. Memory
// that has become large is not given to others.
func (p *pending) park() (given pending) {
	if len(p.byID) > 0 {
		return pending{}
	}
	if len(p.free) < maxFree {
		given = pending{byID: p.byID, byDeadline: p.byDeadline, free: p.free}
	}
	p.byID, p.byDeadline, p.free = nil, nil, nil
	return given
}

// unpark takes over what another core has given up, unless this one has kept its own.
func (p *pending) unpark(given *pending) {
	if p.byID == nil {
		p.byID, p.byDeadline, p.free = given.byID, given.byDeadline, given.free
	}
}

func (p *pending) len() int { return len(p.byID) }

// add adds a request, whose id must not be pending.
func (p *pending) add(added request) {
	if p.byID == nil {
		p.byID = make(map[int64]*request)
	}
	r := p.reuse()
	*r = added
	r.position = -1
	p.byID[r.id] = r
	if r.isCall() {
		p.calls++
	}
	if r.deadline != 0 {
		heap.Push(&p.byDeadline, r)
	}
}

// postpone changes a deadline.
func (p *pending) postpone(r *request, deadline instant) {
	r.deadline = deadline
	heap.Fix(&p.byDeadline, r.position)
}

// reuse returns a request to fill: one that has ended, or a new one.
func (p *pending) reuse() *request {
	last := len(p.free) - 1
	if last < 0 {
		return new(request)
	}
	r := p.free[last]
	p.free = p.free[:last]
	return r
}

// take removes a request and returns it as it was.
func (p *pending) take(id int64) (request, bool) {
	r, ok := p.byID[id]
	if !ok {
		return request{}, false
	}
	delete(p.byID, id)
	if r.position >= 0 {
		heap.Remove(&p.byDeadline, r.position)
	}
	taken := *r
	if taken.isCall() {
		p.calls--
	}
	*r = request{}
	if len(p.free) < keepRequests {
		p.free = append(p.free, r)
	}
	return taken, true
}

// ids lists the pending ids in order, since the order of a map is random.
func (p *pending) ids() []int64 {
	ids := make([]int64, 0, len(p.byID))
	for id := range p.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// deadline is when the next request times out; 0: never.
func (p *pending) deadline() instant {
	if len(p.byDeadline) == 0 {
		return 0
	}
	return p.byDeadline[0].deadline
}

// requestHeap orders by deadline, then by id, so that equal histories expire
// in equal order.
type requestHeap []*request

func (h requestHeap) Len() int { return len(h) }

func (h requestHeap) Less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].id < h[j].id
}

func (h requestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *requestHeap) Push(x any) {
	r := x.(*request)
	r.position = len(*h)
	*h = append(*h, r)
}

func (h *requestHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.position = -1
	return r
}

// progressed restarts the timeout of a request that has made progress, if that was
// asked for. It returns nil if no caller waits for the request.
func (p *pending) progressed(id int64, now instant) *request {
	r := p.byID[id]
	switch {
	case r == nil || r.probe:
		return nil
	case r.timeout == 0:
	case r.suspended:
		r.remaining = r.timeout
	default:
		p.postpone(r, min(now+r.timeout, r.limit))
	}
	return r
}

// suspend pauses the timeouts of our requests on a stream while we serve a request of the peer:
// it may need the answer to answer us. Maximum durations keep running. On a byte stream, that
// request may belong to any of ours. A peer cannot keep our call waiting forever by asking: the
// limit of the call stays.
func (p *pending) suspend(stream transport.Stream, now instant) {
	for _, r := range p.byID {
		if r.stream == stream && r.sent && r.position >= 0 && !r.suspended {
			r.suspended, r.remaining = true, r.deadline-now
			p.postpone(r, r.limit)
		}
	}
}

// resume lets the timeouts of a stream's requests run on.
func (p *pending) resume(stream transport.Stream, now instant) {
	for _, r := range p.byID {
		if r.stream == stream {
			p.resumeOne(r, now)
		}
	}
}

func (p *pending) resumeOne(r *request, now instant) {
	if r.suspended {
		r.suspended = false
		p.postpone(r, min(now+r.remaining, r.limit))
	}
}

// soleOf returns the only one of the requests that was sent and is pending, or else 0. If several
// are pending, none may end: any of them could be the one that was answered.
func (p *pending) soleOf(ids []transport.Tag) (sole int64) {
	for _, tag := range ids {
		switch r, ok := p.byID[int64(tag)]; {
		case !ok || !r.sent:
		case sole != 0:
			return 0
		default:
			sole = int64(tag)
		}
	}
	return sole
}

// markSent notes whether the link has the frame of a request.
func (p *pending) markSent(id int64, sent bool) {
	if r, ok := p.byID[id]; ok {
		r.sent = sent
	}
}

// awaited counts the requests that a caller waits for: all but the probe.
func (p *pending) awaited(probe int64) int {
	if _, probing := p.byID[probe]; probing {
		return len(p.byID) - 1
	}
	return len(p.byID)
}

// unanswered returns the delivery of a request that will get no answer. When in doubt it may have
// been executed: the program must not repeat it as if it had not been.
func (r *request) unanswered() Delivery {
	if r.sent {
		return Unknown
	}
	return NotSent
}
