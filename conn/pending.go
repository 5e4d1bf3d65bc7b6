//bowline:pure

package conn

import (
	"container/heap"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A request is one call of ours that has not ended.
type request struct {
	id        int64
	call      *call
	silent    bool             // the peer is never told that it was abandoned
	sent      bool             // its frame was handed to the link
	streaming bool             // it stays until either side ends it
	stream    transport.Stream // that brings its answer
	via       transport.Stream // that it was sent on, being part of what the peer has asked there; else Main
	deadline  instant          // 0 for never
	timeout   time.Duration    // what progress begins anew; 0 when it does not
	limit     instant          // when it is over whatever comes; 0 where there is no deadline
	left      time.Duration    // what was left when the deadline was suspended
	suspended bool             // the peer asks something for it, and is being served
	probe     bool             // nobody waits for it: its answer is a sign of life
	position  int              // in pending.byDeadline; -1 outside
}

// brief reports whether somebody waits for the request, and not for ever.
func (r *request) brief() bool { return !r.streaming && !r.probe }

// pending holds the requests that have not ended, by id and by deadline.
type pending struct {
	byID       map[int64]*request
	byDeadline requestHeap
	free       []*request // at most maxFree, so that a call allocates nothing here
	calls      int        // how many somebody waits for that will end by themselves
	lastID     int64      // the highest id ever accepted
}

const maxFree = 64

func (p *pending) park() {
	if len(p.byID) == 0 {
		p.byID, p.byDeadline, p.free = nil, nil, nil
	}
}

func (p *pending) len() int { return len(p.byID) }

func (p *pending) add(added request) {
	if p.byID == nil {
		p.byID = make(map[int64]*request)
	}
	r := p.reuse()
	*r = added
	r.position = -1
	p.byID[r.id] = r
	p.lastID = max(p.lastID, r.id)
	if r.brief() {
		p.calls++
	}
	if r.deadline != 0 {
		heap.Push(&p.byDeadline, r)
	}
}

// postpone moves a deadline.
func (p *pending) postpone(r *request, deadline instant) {
	r.deadline = deadline
	heap.Fix(&p.byDeadline, r.position)
}

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
	if taken.brief() {
		p.calls--
	}
	*r = request{}
	if len(p.free) < maxFree {
		p.free = append(p.free, r)
	}
	return taken, true
}

// ids lists what is pending in order, since map order is random.
func (p *pending) ids() []int64 {
	ids := make([]int64, 0, len(p.byID))
	for id := range p.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

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

// An ending is how a request ends.
type ending struct {
	cause    Cause
	delivery Delivery
	err      error
}

// settle ends a request, and is the only way one ends: reply, deadline,
// cancellation, loss, refusal and shutdown all come here, each with a request
// that nobody else holds any more (ADR-0003).
func (c *core) settle(now instant, r request, e ending, reply *event) {
	fx := effect{kind: settle, id: r.id, call: r.call, cause: e.cause, delivery: e.delivery, err: e.err}
	if reply != nil {
		fx.payload = reply.payload
	} else if r.sent {
		c.tombstones.add(r.id, grave{e.cause, now + c.options.tombstoneLife()}, now+c.options.TombstoneSweep)
	}
	if !r.probe {
		c.emit(fx)
	}
}

// unanswered says what became of a request whose answer will not come.
func (r *request) unanswered() Delivery {
	if r.sent {
		return Unknown
	}
	return NotSent
}

func (c *core) onCallMade(now instant, ev *event) {
	if cause, err := c.refusal(ev); err != nil {
		c.settle(now, request{id: ev.out.id, call: ev.out.call}, ending{cause, NotSent, err}, nil)
		return
	}
	r := request{id: ev.out.id, call: ev.out.call, silent: ev.silent, streaming: ev.streaming, via: ev.out.stream}
	if ev.timeout > 0 {
		r.deadline, r.limit = now+ev.timeout, now+max(ev.limit, ev.timeout)
	}
	if ev.restarts {
		r.timeout = ev.timeout
	}
	c.pending.add(r)
	c.send(ev.out)
}

func (c *core) onNoticeMade(now instant, ev *event) {
	if cause, err := c.refusal(ev); err != nil {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, err}, nil)
		return
	}
	c.send(ev.out)
}

// refusal says why new work cannot be taken now, or nil.
func (c *core) refusal(ev *event) (Cause, error) {
	state := c.state()
	switch {
	case state == Closing:
		return ShutDown, c.reason
	case c.draining && !c.lastWords(ev):
		return Refused, ErrDraining
	case state != Ready && !(state == Initializing && ev.handshake):
		return Refused, &StateError{State: state, Reason: c.reason}
	case ev.epoch != c.epoch:
		return Refused, ErrStale
	case c.pending.byID[ev.out.id] != nil:
		return Refused, errIDInUse
	default:
		return 0, nil
	}
}

// lastWords reports whether new work is part of a request still being served
// while the Conn drains. A peer that has ended answers no more calls.
func (c *core) lastWords(ev *event) bool {
	return ev.serving && (ev.kind == noticeMade || !c.ended)
}

// onReplied settles the request that was answered. An answer to a request that
// was not sent yet is a guess of the peer's.
func (c *core) onReplied(now instant, ev *event) {
	waiting, ok := c.pending.byID[ev.id]
	switch {
	case ok && waiting.sent:
		r, _ := c.pending.take(ev.id)
		e := ending{Answered, Sent, nil}
		if ev.fault != nil {
			e = ending{PeerError, Sent, ev.fault}
		}
		c.settle(now, r, e, ev)
		if r.stream != ev.stream || !ev.last {
			c.endStream(r.stream) // it has done what it was for
		}
	case !ok && ev.id > 0 && ev.id <= c.pending.lastID:
		c.emit(effect{kind: late, id: ev.id, epoch: c.epoch, cause: c.tombstones.look(ev.id, now)})
	default:
		c.emit(effect{kind: unknown, id: ev.id, epoch: c.epoch})
	}
}

// onProgressed hands progress to the caller of a pending request, and drops
// what comes too late. Where that was asked for, the timeout begins anew.
func (c *core) onProgressed(now instant, ev *event) {
	r, ok := c.pending.byID[ev.id]
	switch {
	case !ok || r.probe: // nobody waits for it
		return
	case r.timeout == 0:
	case r.suspended:
		r.left = r.timeout
	default:
		c.pending.postpone(r, min(now+r.timeout, r.limit))
	}
	c.emit(effect{kind: progress, id: ev.id, call: r.call, method: ev.method, payload: ev.payload})
}

// suspendTimeouts has the calls of a stream wait for as long as the peer is
// being served in what it asks for their sake, and no longer than their limit.
// On a byte stream that may be any of them.
func (c *core) suspendTimeouts(now instant, stream transport.Stream) {
	for _, r := range c.pending.byID {
		if r.stream == stream && r.sent && r.position >= 0 && !r.suspended {
			r.suspended, r.left = true, r.deadline-now
			c.pending.postpone(r, r.limit)
		}
	}
}

// resumeTimeouts gives them the time they had left.
func (c *core) resumeTimeouts(now instant, stream transport.Stream) {
	for _, r := range c.pending.byID {
		if r.stream == stream {
			c.resumeTimeout(now, r)
		}
	}
}

func (c *core) resumeTimeout(now instant, r *request) {
	if r.suspended {
		r.suspended = false
		c.pending.postpone(r, min(now+r.left, r.limit))
	}
}

func (c *core) onCallLeft(now instant, ev *event) {
	cause := Cancelled
	if ev.timeout < 0 { // its context's own deadline
		cause = TimedOut
	}
	if ev.out.call == nil {
		c.abandon(now, ev.id, cause, ev.err)
	} else if c.outbound.withdraw(ev.out.call) {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, ev.err}, nil)
	}
}

func (c *core) expireRequests(now instant) {
	for passed(now, c.pending.deadline()) {
		c.abandon(now, c.pending.byDeadline[0].id, TimedOut, ErrTimedOut)
	}
}

// abandon ends a request that nobody waits for any more, and tells the peer
// once if the request may have reached it.
func (c *core) abandon(now instant, id int64, cause Cause, err error) {
	r, ok := c.pending.take(id)
	if !ok {
		return // it has just ended otherwise
	}
	c.settle(now, r, ending{cause, r.unanswered(), err}, nil)
	if !r.sent {
		c.outbound.drop(id)
		return
	}
	if !r.silent {
		if cancel := c.dialect.Cancel(id, err); cancel.Method != "" {
			c.send(cancel.notification(jsonrpc.IntegerID(id), new(transport.Route)))
		}
	}
	c.endStream(r.stream)
}

// abandonStreaming ends the requests that would stay for ever.
func (c *core) abandonStreaming(now instant) {
	for _, id := range c.pending.ids() {
		if c.pending.byID[id].streaming {
			c.abandon(now, id, ShutDown, ErrDraining)
		}
	}
}

// settleAll ends every request, and every notification still queued, in this
// one step.
func (c *core) settleAll(now instant, cause Cause, why Reason, unsent []transport.Tag) {
	c.settlePending(now, cause, why, unsent)
	for _, out := range c.outbound.take() {
		if out.notification {
			c.settle(now, request{call: out.call}, ending{cause, NotSent, why}, nil)
		}
	}
	c.outbound = outbound{}
}

// settlePending ends every request in id order.
func (c *core) settlePending(now instant, cause Cause, why Reason, unsent []transport.Tag) {
	for _, id := range c.pending.ids() {
		r, _ := c.pending.take(id)
		if !r.sent {
			c.outbound.drop(id)
		} else if slices.Contains(unsent, transport.Tag(id)) {
			r.sent = false
		}
		c.settle(now, r, ending{cause, r.unanswered(), why}, nil)
	}
}

// tombstoneLife covers the longest way a reply can come late: a whole request,
// a whole handshake and a whole backoff, and a margin for jitter (ADR-0005).
func (o *Options) tombstoneLife() time.Duration {
	return o.RequestTimeout + o.InitTimeout + o.BackoffMax + 5*time.Second
}
