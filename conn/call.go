package conn

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request is one call to the peer.
type Request struct {
	Method string
	Params json.RawMessage // an object or array; nil for none

	// Name and Version are for the transport, see transport.Route.
	Name    string
	Version string

	// MessageFor makes the message of one attempt, where that depends on the id of
	// the request or on the incarnation that the attempt is for. The Conn calls it
	// on the calling goroutine, while it is ready or its handshake runs, before
	// each attempt. An error, or a panic, ends the call as refused and not sent.
	// A message without a method has that of the Request. Nil: the message is
	// Method, Params, Name and Version.
	MessageFor func(id int64, epoch uint64) (Message, error)

	// Epoch is the incarnation the call is for: where another is present it is
	// refused with ErrStale, not sent. Zero: whichever is present when it is
	// sent.
	Epoch uint64

	// Timeout ends an attempt if no answer has come, and the call with it.
	// Zero: Options.RequestTimeout. Negative: only the context bounds it. It
	// begins anew with each attempt, and does not run between them: the context
	// bounds the whole.
	Timeout time.Duration

	// ProgressRestarts has each notification of progress begin the timeout
	// anew, but never beyond MaxTimeout after the attempt was made.
	ProgressRestarts bool

	// MaxTimeout bounds an attempt whose timeout is prolonged: by its progress,
	// or because the peer is being served in what it asks in order to answer.
	// Less than the timeout prolongs nothing. Zero: ten times the timeout.
	MaxTimeout time.Duration

	// WaitForReady waits for the Conn to become ready, until the context ends,
	// instead of failing at once.
	WaitForReady bool

	// Retries is how many more times Call may send the request, each time under
	// a new id, after its link or its stream was lost or while the Conn was not
	// ready. Zero: none. Negative: as often as needed. Above 1,000: 1,000.
	//
	// Before each retry Call waits until the Conn is ready. Where the link is
	// still the same, Call first waits by the delays of Options.BackoffMin and
	// BackoffMax, which begin anew after a Streaming attempt that lasted
	// Options.ProvenAfter. Only ctx bounds these waits.
	//
	// A request that the peer may have executed is sent again only if it is
	// Repeatable. An answer, an error of the peer's, a timeout, a cancellation
	// and any other refusal end the call. Only a request that is Streaming,
	// Repeatable and without a bound is kept open beyond those: Call sends it
	// again after an answer, a refusal or a peer's error as well. Such a call
	// ends with ctx, when the Conn closes, when MessageFor fails, and by the
	// errors of the peer that no retry mends: method not found, invalid params
	// and invalid request.
	Retries int

	// Repeatable says that to execute the request twice does no harm.
	Repeatable bool

	// OnAttempt is called with each attempt that has ended and will be followed
	// by another. Call calls it on the calling goroutine, before it waits.
	OnAttempt func(Attempt)

	// OnProgress is handed the params of progress notifications, on the
	// calling goroutine, before Call returns. While it runs, only the newest
	// progress is kept.
	OnProgress func(params json.RawMessage)

	// Silent keeps the peer from being told when the call is abandoned.
	Silent bool

	// Streaming is for a request that stays until either side ends it: only
	// the context bounds it, and Close ends it first.
	Streaming bool
}

// An origin is on whose behalf a message is made: the program's, a
// handshake's or, when that of a handler, a request's of the peer.
type origin struct {
	handshake *Incarnation
	serving   *Incoming
}

// epoch is the incarnation a notification is encoded for: the origin's own, or
// the present one.
func (o origin) epoch(c *Conn) uint64 {
	switch {
	case o.handshake != nil:
		return o.handshake.epoch
	case o.serving != nil:
		return o.serving.Epoch
	default:
		return c.status.Load().Epoch
	}
}

// stream is where a message of that origin goes.
func (o origin) stream() transport.Stream {
	if o.serving != nil {
		return o.serving.key.stream
	}
	return transport.Main
}

// A call is a caller who waits. The loop settles it exactly once.
type call struct {
	done     chan outcome         // capacity one: settling never blocks
	progress chan json.RawMessage // capacity one, the newest; nil when nobody listens
	slots    chan struct{}        // where its send slot goes back to; nil once it has
	route    transport.Route      // of its frame
	settled  bool
}

// An outcome is how a call ended.
type outcome struct {
	ending
	result json.RawMessage
}

// newCall takes a call from the pool, holding the send slot just acquired.
func (c *Conn) newCall() *call {
	waiting, ok := c.calls.Get().(*call)
	if !ok {
		waiting = &call{done: make(chan outcome, 1)}
	}
	*waiting = call{done: waiting.done, slots: c.slots}
	return waiting
}

// settle hands over the one outcome. The loop alone calls it. A second outcome
// would be a fault of the core's: it is a panic, not a lost reply.
func (c *call) settle(o outcome) {
	if c.settled {
		panic("conn: a request was settled twice")
	}
	c.settled = true
	c.releaseSlot()
	c.done <- o
}

func (c *call) releaseSlot() {
	if c.slots != nil {
		<-c.slots
		c.slots = nil
	}
}

// offer hands progress on, and reports whether it has replaced some that was
// not picked up yet. The loop alone calls it.
func (c *call) offer(params json.RawMessage) (replaced bool) {
	if c.progress == nil {
		return false
	}
	select {
	case <-c.progress:
		replaced = true
	default:
	}
	c.progress <- params // the loop is the only sender, so there is room
	return replaced
}

// Call makes a request and waits for its one outcome: the result, or a
// *CallError. It returns at the end of ctx at the latest. The result is the
// caller's.
func (c *Conn) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return c.call(ctx, r, origin{})
}

func (c *Conn) call(ctx context.Context, r Request, by origin) (json.RawMessage, error) {
	if by.handshake != nil {
		r.Epoch = by.handshake.epoch
	}
	if by.serving != nil {
		r.Epoch, r.Retries, r.WaitForReady = by.serving.Epoch, 0, false
	}
	c.counters.calls.Add(1)
	m := making{conn: c, request: r, by: by, id: c.nextID()}
	m.begin(ctx)
	o := m.whole(ctx)
	c.counters.settled()[o.cause][o.delivery].Add(1)
	return o.result, m.end(o)
}

// nextID draws the id of a request to come: positive, rising, never reused in
// the life of the Conn.
func (c *Conn) nextID() int64 { return c.lastID.Add(1) }

func (c *Conn) timeout(r *Request) time.Duration {
	switch {
	case r.Timeout < 0 || r.Streaming:
		return 0
	case r.Timeout == 0:
		return c.options.RequestTimeout
	default:
		return r.Timeout
	}
}

// limit is what the timeout may be prolonged to.
func (c *Conn) limit(r *Request) time.Duration {
	if r.MaxTimeout > 0 {
		return r.MaxTimeout
	}
	return 10 * c.timeout(r)
}

// await waits for the outcome, hands on progress, and gives up when ctx ends.
func (c *Conn) await(ctx context.Context, r *Request, id int64, waiting *call) outcome {
	leaving := ctx.Done()
	for {
		select {
		case o := <-waiting.done:
			select {
			case params := <-waiting.progress:
				r.OnProgress(params)
			default:
			}
			return o
		case params := <-waiting.progress:
			r.OnProgress(params)
		case <-leaving:
			leaving = nil
			c.leave(ctx, event{id: id})
		}
	}
}

// leave asks the loop to settle a call whose context has ended. It does so at
// once, or has done so already.
func (c *Conn) leave(ctx context.Context, ev event) {
	ev.kind, ev.err = callLeft, context.Cause(ctx)
	if leavingCause(ctx) == TimedOut {
		ev.timeout = -1
	}
	c.post(ev)
}

func leavingCause(ctx context.Context) Cause {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return TimedOut
	}
	return Cancelled
}

// Notify sends a notification. It returns nil once the link has taken it; the
// peer may still not get it. It waits for room until ctx ends.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.notify(ctx, method, params, origin{})
}

func (c *Conn) notify(ctx context.Context, method string, params json.RawMessage, by origin) error {
	if err := c.acquireSlot(ctx); err != nil {
		return &CallError{Method: method, Cause: leavingCause(ctx), Delivery: NotSent, Err: err}
	}
	waiting := c.newCall()
	m := Message{Method: method, Params: params}
	out := m.notification(jsonrpc.ID{}, &waiting.route)
	out.call, out.stream, out.notification = waiting, by.stream(), true
	posted := c.post(event{
		kind: notificationMade, handshake: by.handshake != nil, serving: by.serving != nil || c.serves(ctx), epoch: by.epoch(c), out: out,
	})
	if !posted {
		waiting.releaseSlot()
		o := c.refusedUnposted()
		return &CallError{Method: method, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	}
	o := c.awaitTaken(ctx, waiting)
	if o.cause != Answered {
		return &CallError{Method: method, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	}
	return nil
}

// awaitTaken waits until the link has taken a notification, and withdraws it
// when ctx ends first.
func (c *Conn) awaitTaken(ctx context.Context, waiting *call) outcome {
	select {
	case o := <-waiting.done:
		c.calls.Put(waiting)
		return o
	case <-ctx.Done():
		c.leave(ctx, event{out: outboundFrame{call: waiting}})
		return <-waiting.done // not reused: the loop may still look for it
	}
}

func (c *Conn) acquireSlot(ctx context.Context) error {
	if ctx.Err() != nil { // nothing is sent for a caller who has left
		return context.Cause(ctx)
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusedUnposted is the outcome of a call that no loop would take.
func (c *Conn) refusedUnposted() outcome {
	if status := c.status.Load(); status.State == Closing {
		return outcome{ending: ending{ShutDown, NotSent, status.Reason}}
	}
	return outcome{ending: ending{Refused, NotSent, ErrNotRunning}}
}
