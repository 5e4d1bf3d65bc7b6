//bowline:pure

package conn

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Message is the content of a request or notification.
type Message struct {
	Method    string
	Params    json.RawMessage      // an object or array; nil for none
	Name      string               // for routing; see transport.Route
	Arguments *transport.Arguments // for routing; see transport.Route
	Version   string               // for routing; see transport.Route
}

// request returns the frame of a request, and writes its route to where the caller
// keeps it.
func (m *Message) request(id int64, route *transport.Route) outboundFrame {
	name := jsonrpc.IntegerID(id)
	*route = transport.Route{Kind: jsonrpc.KindRequest, Method: m.Method, ID: name, Name: m.Name, Arguments: m.Arguments, Version: m.Version}
	return outboundFrame{id: id, frame: jsonrpc.AppendRequest(nil, name, m.Method, m.Params), route: route}
}

// notification returns the frame of a notification. About is the request that a
// cancellation is about, and the zero ID for other notifications.
func (m *Message) notification(about jsonrpc.ID, route *transport.Route) outboundFrame {
	*route = transport.Route{Kind: jsonrpc.KindNotification, Method: m.Method, ID: about, Name: m.Name, Version: m.Version}
	return outboundFrame{frame: jsonrpc.AppendNotification(nil, m.Method, m.Params), route: route}
}

// An outboundFrame is one message on its way to the link.
type outboundFrame struct {
	id           int64 // of our request; 0 otherwise
	stream       transport.Stream
	frame        []byte
	route        *transport.Route // for the link; opaque to the core
	call         *call            // who waits for it, or nil; opaque to the core
	notification bool             // its caller waits for the link to take it
	reply        bool             // never dropped
	last         bool             // it ends its stream
	answers      jsonrpc.ID       // reply: the request it answers, while that can be put differently
	attempts     int              // how often the link has refused it
}

// outbound holds the frames that the link had no room for, in order. It is empty
// unless the link is busy (ADR-0007).
type outbound struct {
	queue   []outboundFrame
	retryAt instant // when to offer the queue again; 0 while it is empty
	stuckAt instant // when to give the link up; 0 unless it is busy and has taken nothing since
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

func (o *outbound) empty() bool { return len(o.queue) == 0 }

// drop drops a request that has ended before it was sent.
func (o *outbound) drop(id int64) {
	o.queue = slices.DeleteFunc(o.queue, func(out outboundFrame) bool { return out.id == id })
	if len(o.queue) == 0 {
		o.retryAt = 0
	}
}

// withdraw drops the notification of a caller who gave up. It reports whether the
// notification was still queued.
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

// lastReply returns the last reply that is queued for a stream, or nil.
func (o *outbound) lastReply(stream transport.Stream) *outboundFrame {
	for i := len(o.queue) - 1; i >= 0; i-- {
		if o.queue[i].reply && o.queue[i].stream == stream {
			return &o.queue[i]
		}
	}
	return nil
}

// routed returns the route of the frame.
func (o *outboundFrame) routed() transport.Route {
	if o.route == nil {
		return transport.Route{}
	}
	return *o.route
}

// errorRoute returns the route of an error response.
func errorRoute(id jsonrpc.ID, code int64) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindError, ID: id, Code: code}
}

// resultRoute returns the route of a result.
func resultRoute(id jsonrpc.ID) *transport.Route {
	return &transport.Route{Kind: jsonrpc.KindResult, ID: id}
}

// take empties the queue and returns what was in it.
func (o *outbound) take() []outboundFrame {
	queue := o.queue
	o.queue, o.retryAt = nil, 0
	return queue
}

// congested reports whether so many replies wait that the Conn should not read
// further requests.
func (o *outbound) congested() bool {
	replies := 0
	for i := range o.queue {
		if o.queue[i].reply {
			replies++
		}
	}
	return replies >= repliesHigh
}

// add queues a frame behind those that wait.
func (o *outbound) add(out outboundFrame) { o.queue = append(o.queue, out) }

// retryLater queues a frame, to be offered in about 10 ms.
func (o *outbound) retryLater(out outboundFrame, now instant, random float64) {
	o.add(out)
	o.retryAt = now + busyWait(random)
}

// refused notes that the link was busy when a frame was offered (tried), or was
// not offered because it is behind one that was refused. It reports whether to give
// the frame up.
func (o *outbound) refused(out *outboundFrame, now instant, tried, moved bool) (tooOften bool) {
	if moved {
		o.stuckAt = 0
	}
	if tried {
		out.attempts++
		if o.stuckAt == 0 {
			o.stuckAt = now + stuckAfter
		}
	}
	return out.attempts > busyRetries && !out.reply
}

func busyWait(random float64) time.Duration {
	return time.Duration(float64(busyDelay) * (1 + busyJitter*(2*random-1)))
}

// failureCause is how a request ends that the link could not send.
func failureCause(err error, unsent bool) Cause {
	if !unsent || errors.Is(err, transport.ErrClosed) {
		return LinkLost
	}
	return Refused
}
