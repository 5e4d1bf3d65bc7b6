//bowline:pure

package conn

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Message is the content of a request or notification.
type Message struct {
	Method    string
	Params    json.RawMessage      // an object or array; nil for none
	Body      jsonrpc.Value        // params that encode themselves, in place of Params; only in messages of a MessageMaker
	Name      string               // for routing; see transport.Route
	Arguments *transport.Arguments // for routing; see transport.Route
	Version   string               // for routing; see transport.Route
}

// request returns the frame of a request, and writes its route to where the caller
// keeps it.
func (m *Message) request(id int64, route *transport.Route) outboundFrame {
	name := m.routeRequest(id, route)
	return outboundFrame{id: id, frame: jsonrpc.AppendRequest(nil, name, m.Method, m.Params), route: route}
}

// requestOf is request for params that encode themselves. It returns their error.
func (m *Message) requestOf(id int64, route *transport.Route) (outboundFrame, error) {
	name := m.routeRequest(id, route)
	frame, err := jsonrpc.AppendRequestOf(nil, name, m.Method, m.Body)
	return outboundFrame{id: id, frame: frame, route: route}, err
}

func (m *Message) routeRequest(id int64, route *transport.Route) jsonrpc.ID {
	name := jsonrpc.IntegerID(id)
	*route = transport.Route{Kind: jsonrpc.KindRequest, Method: m.Method, ID: name, Name: m.Name, Arguments: m.Arguments, Version: m.Version}
	return name
}

// notification returns the frame of a notification. About is the request that a
// cancellation is about, and the zero ID for other notifications.
func (m *Message) notification(about jsonrpc.ID, route *transport.Route) outboundFrame {
	*route = transport.Route{Kind: jsonrpc.KindNotification, Method: m.Method, ID: about, Name: m.Name, Version: m.Version}
	return outboundFrame{frame: jsonrpc.AppendNotification(nil, m.Method, m.Params), route: route}
}

// An outboundFrame is one message on its way to the link.
type outboundFrame struct {
	id           int64 // the id of our request; 0 for other messages
	stream       transport.Stream
	frame        []byte
	route        *transport.Route // for the link; the core does not use it
	call         *call            // the call that waits for it, or nil; the core does not use it
	notification bool             // it is a notification: its caller waits until the link has accepted it
	once         bool             // it is a notification that does not wait for room on the link
	reply        bool             // it is a reply, which is never dropped
	last         bool             // the frame ends its stream
	attempts     uint8            // how often the link has refused it; counting stops at the limit
	answers      *Incoming        // for a reply: the request, as long as an error can replace the reply
	parts        *[]part          // for the array of a batch: the answers in it; a pointer, because every frame has this field
}

// outbound holds the frames that the link had no room for, in order. It is empty
// unless the link is busy (ADR-0007).
//
// The core offers them again in growing numbers: first one, then twice as many each time that the
// link has accepted all, until it refuses one. So a link with room for one frame is not offered
// all waiting frames, and it refuses at most the last few. Frames leave in the order in which
// they came, whatever the link refuses in between: an answer must not overtake the progress
// before it, nor a cancellation the request that it is about. Its length needs no bound of its
// own: a call or notification has a send slot, and replies stop the reading when they are many.
type outbound struct {
	slots    []outboundFrame // the frames in slots[head:] wait
	head     int
	replies  int     // how many of them are replies
	window   int32   // how many frames were offered last; 0 after the link has refused one of them
	returned int32   // how many of those have come back to the head of the queue
	retryAt  instant // when to offer the queue again; 0 while it is empty
	stuckAt  instant // when to give up the link; 0 if the link is not busy or has accepted a frame since it was busy
}

// A frame that a busy link refuses is offered three more times, 10 ms ± 50 % apart.
// A link that takes nothing for ten seconds is lost.
const (
	busyRetries = 3
	busyDelay   = 10 * time.Millisecond
	busyJitter  = 0.5
	stuckAfter  = 10 * time.Second

	// repliesHigh is how many replies may wait before the Conn stops reading.
	repliesHigh = 64
)

// maxWindow is the maximum number of frames that are offered to a link in one step.
const maxWindow = 32

// waiting returns the frames that wait. The slice is valid until the queue changes.
func (o *outbound) waiting() []outboundFrame { return o.slots[o.head:] }

func (o *outbound) empty() bool { return o.head == len(o.slots) }

// drop drops a request that has ended before it was sent.
func (o *outbound) drop(id int64) {
	o.remove(func(out *outboundFrame) bool { return out.id == id })
}

// withdraw drops the notification of a caller that has given up. It reports whether the
// notification was still queued.
func (o *outbound) withdraw(caller *call) bool {
	return o.remove(func(out *outboundFrame) bool { return out.notification && out.call == caller })
}

// remove removes the first frame for which wanted returns true, which must not be a reply.
// It reports whether there was one.
func (o *outbound) remove(wanted func(*outboundFrame) bool) bool {
	for i := o.head; i < len(o.slots); i++ {
		if wanted(&o.slots[i]) {
			o.slots = slices.Delete(o.slots, i, i+1)
			o.tidy()
			return true
		}
	}
	return false
}

// tidy resets an empty queue. It keeps some of the slots.
func (o *outbound) tidy() {
	if !o.empty() {
		return
	}
	o.head, o.returned, o.retryAt = 0, 0, 0
	if o.slots = o.slots[:0]; cap(o.slots) > keepSlots {
		o.slots = nil
	}
}

// keepSlots is how many slots an empty queue keeps: enough for all callers with a send
// slot, by default, and as many replies. A parked core keeps none.
const keepSlots = 2048

func (o *outbound) park() {
	if o.empty() {
		o.slots = nil
	}
}

// lastReply returns the last reply that is queued for a stream, or nil.
func (o *outbound) lastReply(stream transport.Stream) *outboundFrame {
	for i := len(o.slots) - 1; i >= o.head; i-- {
		if o.slots[i].reply && o.slots[i].stream == stream {
			return &o.slots[i]
		}
	}
	return nil
}

// routed returns the route of the frame.
func (o *outboundFrame) routed() transport.Route {
	switch {
	case o.route != nil:
		return *o.route
	case o.answers != nil && o.answers.failed:
		return *errorRoute(o.answers.key.id, o.answers.failure)
	case o.answers != nil:
		return *resultRoute(o.answers.key.id)
	default:
		return transport.Route{}
	}
}

// errorRoute returns the route of an error response.
func errorRoute(id jsonrpc.ID, code int64) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindError, ID: id, Code: code}
}

// resultRoute returns the route of a result.
func resultRoute(id jsonrpc.ID) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindResult, ID: id}
}

// widen returns how many frames of the queue to offer now: the first ones, or more of them
// after the link has accepted all that were offered.
func (o *outbound) widen() int {
	o.window, o.returned = min(max(2*o.window, 1), maxWindow), 0
	return min(int(o.window), len(o.waiting()))
}

// take removes the oldest frame and returns it.
func (o *outbound) take() outboundFrame {
	taken := o.slots[o.head]
	o.slots[o.head] = outboundFrame{}
	o.head++
	if taken.reply {
		o.replies--
	}
	o.tidy()
	return taken
}

// congested reports whether so many replies wait that the Conn should not read
// further requests.
func (o *outbound) congested() bool { return o.replies >= repliesHigh }

// add queues a frame behind those that wait.
func (o *outbound) add(out outboundFrame) {
	if len(o.slots) == cap(o.slots) && o.head > len(o.slots)/2 {
		o.slots, o.head = slices.Delete(o.slots, 0, o.head), 0
	}
	o.slots = append(o.slots, out)
	o.count(&out)
}

// giveBack puts a refused frame back at the head of the queue, behind frames that were put back
// before it. Frames of one step come back in the order in which they were offered, so each goes
// behind the one before it.
func (o *outbound) giveBack(out outboundFrame) {
	if o.head == 0 {
		o.slots = slices.Insert(o.slots, int(o.returned), out)
	} else {
		o.head--
		copy(o.slots[o.head:], o.slots[o.head+1:][:o.returned])
		o.slots[o.head+int(o.returned)] = out
	}
	o.returned++
	o.window = 0
	o.count(&out)
}

func (o *outbound) count(added *outboundFrame) {
	if added.reply {
		o.replies++
	}
}

// retryLater gives a frame back, to be offered in about 10 ms.
func (o *outbound) retryLater(out outboundFrame, now instant, random float64) {
	o.giveBack(out)
	o.retryAt = now + busyWait(random)
}

// refused notes that the link refused a frame (tried), or that the frame was not offered because
// it is behind a refused one. It reports whether to give up the frame. A reply is never given up:
// the peer has a caller who waits for it. If nothing moves at all, the link is lost instead, at
// stuckAt.
func (o *outbound) refused(out *outboundFrame, now instant, tried, moved bool) (tooOften bool) {
	if moved {
		o.stuckAt = 0
	}
	if tried {
		out.attempts = min(out.attempts, busyRetries) + 1
		if o.stuckAt == 0 {
			o.stuckAt = now + stuckAfter
		}
	}
	return out.attempts > busyRetries && !out.reply
}

func busyWait(random float64) time.Duration {
	return time.Duration(float64(busyDelay) * (1 + busyJitter*(2*random-1)))
}

// failureCause returns how a request ends if the link could not send it.
func failureCause(err error, unsent bool) Cause {
	if !unsent || errors.Is(err, transport.ErrClosed) {
		return LinkLost
	}
	return Refused
}

// reply sends an answer to the peer, or adds it to those of its batch. The last one
// ends a stream that the peer has begun.
func (c *core) reply(out outboundFrame, b *batch) {
	if b != nil {
		c.gather(out, b)
		return
	}
	out.last = c.streams.isLastReply(out.stream)
	c.send(out)
}

// send offers a frame to the link, or queues it behind the frames that already wait. As long as
// one waits, none may be offered directly.
func (c *core) send(out outboundFrame) {
	if !c.outbound.empty() {
		c.outbound.add(out)
		return
	}
	c.transmit(out)
}

// transmit offers a frame. The request counts as sent from here on, until the link has given the
// frame back: if the loop panicked in between, the peer might have got it, and the caller must
// learn that.
func (c *core) transmit(out outboundFrame) {
	c.pending.markSent(out.id, true)
	c.emit(effect{kind: transmit, epoch: c.epoch, out: out})
}

// onBusy takes back a frame that the link had no room for. The shell gives back everything behind
// it too, in order, so no frame overtakes another. A notification that must not wait ends here,
// at the first refusal.
func (c *core) onBusy(now instant, ev *event) {
	out := *ev.out
	c.pending.markSent(out.id, false)
	if out.once {
		c.refuseBusy(now, out)
		return
	}
	if c.outbound.refused(&out, now, ev.tried, ev.moved) {
		c.refuseBusy(now, out)
		return
	}
	c.outbound.retryLater(out, now, ev.random)
}

// refuseBusy ends what a frame was for that the link has refused too often. Its delivery is
// NotSent, which is certain: the link takes a whole frame or nothing of it.
func (c *core) refuseBusy(now instant, out outboundFrame) {
	switch r, ok := c.pending.take(out.id); {
	case ok && r.probe:
		c.liveness.asked = false // the peer did not get the probe
	case ok:
		c.settle(now, r, ending{Refused, NotSent, transport.ErrBusy}, nil)
	case out.notification:
		c.settle(now, request{call: out.call}, ending{Refused, NotSent, transport.ErrBusy}, nil)
	}
}

// retrySends offers the queue to the link again, or gives up a link that accepts nothing.
func (c *core) retrySends(now instant, ev *event) {
	if ev.moved {
		c.outbound.stuckAt = 0
	}
	switch {
	case passed(now, c.outbound.stuckAt):
		c.lose(now, Reason{PeerNotReading, fmt.Errorf("nothing could be written for %v", stuckAfter)}, ev.random, 0, nil)
	case passed(now, c.outbound.retryAt):
		c.flush(now, ev)
	}
}

// onWritable offers the queue to a link that has room again. It is no promise that there is room:
// the link may refuse again.
func (c *core) onWritable(now instant, ev *event) {
	c.outbound.stuckAt = 0
	c.flush(now, ev)
}

// flush offers the first frames of the queue to the link. Frames that the link refuses come back
// through onBusy. If it accepts all, the shell reports that it is writable. It does not offer all
// at once: a link with room for one frame would refuse and return the others each time.
func (c *core) flush(now instant, ev *event) {
	for range c.outbound.widen() {
		c.transmit(c.outbound.take())
	}
	if c.outbound.empty() {
		return
	}
	c.outbound.retryAt = now + busyWait(ev.random)
	c.emit(effect{kind: offerMore, epoch: c.epoch})
}

// onFailed handles a message that the link could not send, although the link continues. If the
// message is a reply, for instance one that is too large, an error replaces it. The array of a
// batch is replaced by its answers. What is sent in its place has no replacement of its own, so
// this ends.
func (c *core) onFailed(now instant, ev *event) {
	r, ok := c.pending.take(ev.out.id)
	c.outbound.window = 0
	switch {
	case ok:
		c.streams.drop(r.stream)
		r.sent = !ev.unsent
		c.settle(now, r, ending{failureCause(ev.err, ev.unsent), r.unanswered(), ev.err}, nil)
	case ev.notice() != nil:
		c.settle(now, request{call: ev.notice()}, ending{failureCause(ev.err, true), NotSent, ev.err}, nil)
	case ev.out.answers != nil && !errors.Is(ev.err, transport.ErrNoRoute):
		fault := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the reply cannot be sent: %v", ev.err)}
		// What was offered behind it is about to come back, and must stay behind it.
		c.outbound.retryLater(outboundFrame{
			stream: ev.out.stream, reply: true, last: ev.out.last,
			frame: jsonrpc.AppendError(nil, ev.out.answers.key.id, fault), route: errorRoute(ev.out.answers.key.id, fault.Code),
		}, now, ev.random)
	case ev.out.parts != nil && !errors.Is(ev.err, transport.ErrNoRoute): // the array may be too large, and each answer small enough
		answers := split(ev.out)
		answers[len(answers)-1].last = ev.out.last
		for _, answer := range answers {
			c.outbound.retryLater(answer, now, ev.random)
		}
	}
}
