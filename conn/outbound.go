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

// A Message is what a request or notification says.
type Message struct {
	Method  string
	Params  json.RawMessage // an object or array; nil for none
	Name    string          // see transport.Route
	Version string          // see transport.Route
}

// request makes the frame of a request. Its route is written to where the caller
// wants it.
func (m *Message) request(id int64, route *transport.Route) outboundFrame {
	name := jsonrpc.IntegerID(id)
	*route = transport.Route{Kind: jsonrpc.KindRequest, Method: m.Method, ID: name, Name: m.Name, Version: m.Version}
	return outboundFrame{id: id, frame: jsonrpc.AppendRequest(nil, name, m.Method, m.Params), route: route}
}

// notification makes the frame of a notification. A cancellation says which
// request it is about; other notifications pass the zero ID.
func (m *Message) notification(about jsonrpc.ID, route *transport.Route) outboundFrame {
	*route = transport.Route{Kind: jsonrpc.KindNotification, Method: m.Method, ID: about, Name: m.Name, Version: m.Version}
	return outboundFrame{frame: jsonrpc.AppendNotification(nil, m.Method, m.Params), route: route}
}

// An outboundFrame is one message on its way to the link.
type outboundFrame struct {
	id           int64 // of our request; 0 otherwise
	stream       transport.Stream
	frame        []byte
	route        *transport.Route // what the link is told of the frame; opaque to the core
	call         *call            // who waits for it, or nil; opaque to the core
	notification bool             // its caller waits for the link to take it
	reply        bool             // never dropped
	last         bool             // it ends its stream
	answers      jsonrpc.ID       // reply: the request it answers, while that can be put differently
	attempts     int              // how often the link has refused it
}

// outbound holds what the link had no room for, in order. It is empty unless
// the link is busy, so the main path passes it by (ADR-0007).
type outbound struct {
	queue   []outboundFrame
	retryAt instant // when to offer the queue again; 0 while it is empty
	stuckAt instant // when to give the link up; 0 unless it has taken nothing since it was busy
}

// Busy handling: a frame is offered again three times, 10 ms apart, give or
// take half; a link that takes nothing for ten seconds has lost its peer.
const (
	busyRetries = 3
	busyDelay   = 10 * time.Millisecond
	busyJitter  = 0.5
	stuckAfter  = 10 * time.Second

	// repliesHigh is how many replies may wait before inbound credit does.
	repliesHigh = 64
)

func (o *outbound) empty() bool { return len(o.queue) == 0 }

// drop forgets a request that has ended before it was sent.
func (o *outbound) drop(id int64) {
	o.queue = slices.DeleteFunc(o.queue, func(out outboundFrame) bool { return out.id == id })
	if len(o.queue) == 0 {
		o.retryAt = 0
	}
}

// withdraw forgets the notification of a caller who gave up, and reports
// whether it was still here.
func (o *outbound) withdraw(caller *call) bool {
	i := slices.IndexFunc(o.queue, func(out outboundFrame) bool { return out.notification && out.call == caller })
	if i < 0 {
		return false
	}
	o.queue = slices.Delete(o.queue, i, i+1)
	if len(o.queue) == 0 {
		o.retryAt = 0
	}
	return true
}

// lastReply is the last answer that waits for a stream, or nil.
func (o *outbound) lastReply(stream transport.Stream) *outboundFrame {
	for i := len(o.queue) - 1; i >= 0; i-- {
		if o.queue[i].reply && o.queue[i].stream == stream {
			return &o.queue[i]
		}
	}
	return nil
}

// routed is what the link is told.
func (o *outboundFrame) routed() transport.Route {
	if o.route == nil {
		return transport.Route{}
	}
	return *o.route
}

// errorRoute is that of an error response.
func errorRoute(id jsonrpc.ID, code int64) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindError, ID: id, Code: code}
}

// resultRoute is that of a result.
func resultRoute(id jsonrpc.ID) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindResult, ID: id}
}

// take empties the queue.
func (o *outbound) take() []outboundFrame {
	queue := o.queue
	o.queue, o.retryAt = nil, 0
	return queue
}

// congested reports whether so many replies wait that more work would only
// make it worse.
func (o *outbound) congested() bool {
	replies := 0
	for i := range o.queue {
		if o.queue[i].reply {
			replies++
		}
	}
	return replies >= repliesHigh
}

// send offers a frame to the link, behind what waits already.
func (c *core) send(out outboundFrame) {
	if !c.outbound.empty() {
		c.outbound.queue = append(c.outbound.queue, out)
		return
	}
	c.transmit(out)
}

func (c *core) transmit(out outboundFrame) {
	if r, ok := c.pending.byID[out.id]; ok {
		r.sent = true
	}
	c.emit(effect{kind: transmit, epoch: c.epoch, out: out})
}

// onBusy takes a frame back that the link had no room for. The shell gives
// everything behind it back too, in order, so nothing overtakes.
func (c *core) onBusy(now instant, ev *event) {
	out := ev.out
	if r, ok := c.pending.byID[out.id]; ok {
		r.sent = false
	}
	if ev.moved {
		c.outbound.stuckAt = 0
	}
	if ev.tried {
		out.attempts++
		if c.outbound.stuckAt == 0 {
			c.outbound.stuckAt = now + stuckAfter
		}
	}
	if out.attempts > busyRetries && !out.reply {
		c.refuseBusy(now, out)
		return
	}
	c.outbound.queue = append(c.outbound.queue, out)
	c.outbound.retryAt = now + busyWait(ev.random)
}

func busyWait(random float64) time.Duration {
	return time.Duration(float64(busyDelay) * (1 + busyJitter*(2*random-1)))
}

func (c *core) refuseBusy(now instant, out outboundFrame) {
	switch r, ok := c.pending.take(out.id); {
	case ok && r.probe:
		c.liveness.asked = false // the peer was not
	case ok:
		c.settle(now, r, ending{Refused, NotSent, transport.ErrBusy}, nil)
	case out.notification:
		c.settle(now, request{call: out.call}, ending{Refused, NotSent, transport.ErrBusy}, nil)
	}
}

// retrySends offers what waits again, or gives up a link that takes nothing.
func (c *core) retrySends(now instant, ev *event) {
	if ev.moved {
		c.outbound.stuckAt = 0
	}
	switch {
	case passed(now, c.outbound.stuckAt):
		c.lose(now, Reason{PeerNotReading, fmt.Errorf("nothing could be written for %v", stuckAfter)}, ev.random, 0, nil)
	case passed(now, c.outbound.retryAt):
		c.flush()
	}
}

// onWritable hears that the link has room again.
func (c *core) onWritable() {
	c.outbound.stuckAt = 0
	c.flush()
}

// flush offers everything that waits; what the link refuses comes straight
// back by onBusy.
func (c *core) flush() {
	for _, out := range c.outbound.take() {
		c.transmit(out)
	}
}

// failureCause tells a message that was refused from one whose way to the
// peer, or back, has ended.
func failureCause(err error, unsent bool) Cause {
	if !unsent || errors.Is(err, transport.ErrClosed) {
		return LinkLost
	}
	return Refused
}

// onFailed hears that a message did not go out although the link lives on. A
// reply that cannot be sent, being too large, is replaced by an error.
func (c *core) onFailed(now instant, ev *event) {
	r, ok := c.pending.take(ev.out.id)
	switch {
	case ok:
		c.streams.drop(r.stream)
		r.sent = !ev.unsent
		c.settle(now, r, ending{failureCause(ev.err, ev.unsent), r.unanswered(), ev.err}, nil)
	case ev.out.notification:
		c.settle(now, request{call: ev.out.call}, ending{failureCause(ev.err, true), NotSent, ev.err}, nil)
	case !ev.out.answers.IsZero() && !errors.Is(ev.err, transport.ErrNoRoute):
		fault := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the reply cannot be sent: %v", ev.err)}
		// What was offered behind it is about to come back, and must not overtake.
		c.outbound.queue = append(c.outbound.queue, outboundFrame{
			stream: ev.out.stream, reply: true, last: ev.out.last,
			frame: jsonrpc.AppendError(nil, ev.out.answers, fault), route: errorRoute(ev.out.answers, fault.Code),
		})
		c.outbound.retryAt = now + busyWait(ev.random)
	}
}
