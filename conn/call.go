package conn

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request describes one call to the peer. Only Method is required.
type Request struct {
	Method string
	Params json.RawMessage // an object or array; nil for none

	// Name and Version tell the transport how to route the request; see
	// transport.Route. The peer does not see them on a byte stream.
	Name    string
	Version string

	// Target names what the request is about, such as a tool, for hooks and metrics.
	// Metrics count by it, so use only a small set of names. The peer does not see
	// it.
	Target string

	// MessageFor builds the message of one attempt, if that depends on the id of the
	// request or on the incarnation that it is for. Call runs it, and then
	// Message.Body, on the calling goroutine before each attempt, while the Conn is
	// ready or its handshake runs. Its context is the one that Hooks.RequestStarted
	// returned, or the caller's if there is no such hook. An error or a panic ends
	// the call as Refused and NotSent. If the message has no method, Method is used.
	// Nil: every attempt sends Method, Params, Name and Version.
	MessageFor MessageMaker

	// Epoch binds the call to one incarnation. If another is present, the call
	// fails with ErrStale and is not sent. Zero: the call is for whichever
	// incarnation is present.
	Epoch uint64

	// Timeout bounds each attempt. If it expires, the call ends as TimedOut. It
	// starts when an attempt has a send slot, and again on each retry. Before that
	// it bounds, separately, how long the attempt waits for a slot and for room on
	// the link. Waiting for the Conn to be ready or between attempts does not
	// count; only ctx bounds that. Zero: Options.RequestTimeout. Negative: no
	// timeout.
	Timeout time.Duration

	// ProgressRestarts restarts the timeout with each progress notification for
	// this request, up to MaxTimeout.
	ProgressRestarts bool

	// MaxTimeout bounds an attempt whose timeout is extended, either by progress
	// or because the peer waits for this side to answer a request that it made
	// for this call. A value below the timeout extends nothing. Zero: ten times
	// the timeout.
	MaxTimeout time.Duration

	// WaitForReady makes Call wait until the Conn is ready, or ctx ends. Without it,
	// a call on a Conn that is not ready fails immediately with a *StateError.
	WaitForReady bool

	// Retries is how often Call may retry the request. Call retries after an attempt
	// that failed because the link or its stream was lost, because the Conn was not
	// ready, or because the peer reported that it was overloaded: by its HTTP status
	// (transport.StatusError.Overloaded), or by a JSON-RPC error with the code
	// jsonrpc.CodeOverloaded. Each attempt has a new id. A request that
	// the peer may have executed is sent again only if it is Repeatable. Zero: Call
	// sends the request once. Above 1,000: 1,000. Negative: there is no limit.
	//
	// Before each retry, Call waits until the Conn is ready. If the link is still
	// the same, Call first waits for the delay that the peer has asked for, or else
	// for one between Options.BackoffMin and BackoffMax, which grows with each
	// retry. After a Streaming attempt that lasted for Options.ProvenAfter, the
	// delays begin at BackoffMin again. Only ctx bounds these waits.
	//
	// Any other end of an attempt ends the call, with one exception: a request that is
	// Streaming and Repeatable and has negative Retries is kept open. Call then also
	// sends it again after an answer, an error from the peer or a refusal. It gives
	// up only when ctx ends, the Conn closes, MessageFor fails, or the peer says that
	// the request itself is wrong (method not found, invalid params, invalid
	// request).
	Retries int

	// Repeatable declares that the peer may execute the request twice without
	// harm. Set it for reads only, or where the peer promises idempotence.
	Repeatable bool

	// OnAttempt receives each failed attempt that will be retried. Call runs it on
	// the calling goroutine, before it waits for the next attempt. If it panics, the
	// panic reaches the caller of Call, and the call ends as if ctx had been cancelled.
	OnAttempt func(Attempt)

	// OnProgress receives the params of each progress notification for this request.
	// Call runs it on the calling goroutine, and not after Call has returned. If
	// notifications arrive while OnProgress runs, Call keeps only the newest. A panic
	// has the same effect as that of OnAttempt.
	OnProgress func(params json.RawMessage)

	// Silent keeps the Conn from sending a cancellation notification when the
	// call ends early.
	Silent bool

	// Streaming marks a request that stays open until either side ends it. It has no
	// timeout; only ctx limits it. Close ends it before anything else.
	Streaming bool
}

// A MessageMaker builds the message of one attempt; see Request.MessageFor.
type MessageMaker interface {
	MakeMessage(ctx context.Context, id int64, epoch uint64) (Message, error)
}

// A MessageFunc is a function that implements MessageMaker.
type MessageFunc func(ctx context.Context, id int64, epoch uint64) (Message, error)

// MakeMessage calls the function.
func (f MessageFunc) MakeMessage(ctx context.Context, id int64, epoch uint64) (Message, error) {
	return f(ctx, id, epoch)
}

// A sender says who sends a message: the program if both fields are nil, or otherwise
// the handshake, or the handler of a request from the peer.
type sender struct {
	handshake *Incarnation
	serving   *Incoming
}

// epoch is the incarnation that a notification is for: the sender's own, or the
// present one.
func (s sender) epoch(c *Conn) uint64 {
	switch {
	case s.handshake != nil:
		return s.handshake.epoch
	case s.serving != nil:
		return s.serving.Epoch
	default:
		_, epoch := c.status.stateAndEpoch()
		return epoch
	}
}

// stream is the stream that the sender's messages go out on.
func (s sender) stream() transport.Stream {
	if s.serving != nil {
		return s.serving.key.stream
	}
	return transport.Main
}

// A call is the state that Call or Notify shares with the loop while it waits for the
// outcome of one attempt. The loop settles it exactly once: it sends the outcome to done.
type call struct {
	done     chan outcome         // capacity one, so settle never blocks
	progress chan json.RawMessage // capacity one: the newest progress; nil without OnProgress
	slots    chan struct{}        // Conn.slots while the call holds a send slot; otherwise nil
	out      outboundFrame        // the frame of the call
	route    transport.Route      // the route of that frame
	settled  bool
}

// An outcome is how a call ended.
type outcome struct {
	ending
	result json.RawMessage
	at     instant // when the loop took the step that ended the call; 0 if it took none
}

// reset prepares a call that is over for another, which holds a send slot.
func (c *call) reset(slots chan struct{}) {
	c.progress, c.slots, c.settled = nil, slots, false
}

// settle gives the outcome to the caller. Only the loop calls it. A second outcome is a
// bug in the core, so settle panics instead of losing a reply.
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

// offer gives progress to the caller. It reports whether this replaced earlier progress
// that the caller had not received. Only the loop calls it.
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

// Call sends a request and waits for its result. Every error it returns is a
// *CallError, which says how the call ended and whether the peer can have
// executed the request; see NotExecuted.
//
// Call returns when ctx ends, whatever the peer does. By default it fails immediately
// if the Conn is not ready, and sends the request at most once; see
// Request.WaitForReady and Request.Retries. The result belongs to the caller.
func (c *Conn) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return c.call(ctx, r, sender{})
}

func (c *Conn) call(ctx context.Context, r Request, by sender) (json.RawMessage, error) {
	if by.handshake != nil {
		r.Epoch = by.handshake.epoch
	}
	if by.serving != nil {
		r.Epoch, r.Retries, r.WaitForReady = by.serving.Epoch, 0, false
	}
	c.counters.calls.Add(1)
	a := c.spares().takeAttempts()
	a.conn, a.request, a.by, a.id = c, r, by, c.nextID()
	a.begin(ctx)
	returned := false
	defer func() {
		if !returned {
			a.breakOff()
		}
	}()
	o := a.run(ctx)
	returned = true
	err := a.end(o)
	c.spares().keepAttempts(a)
	return o.result, err
}

// nextID returns the id for a new request. Ids are positive, rise, and are never
// reused in the life of a Conn.
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

// limit is the maximum to which the timeout may be extended.
func (c *Conn) limit(r *Request) time.Duration {
	if r.MaxTimeout > 0 {
		return r.MaxTimeout
	}
	return 10 * c.timeout(r)
}

// await waits for the outcome, and passes progress on to OnProgress meanwhile.
// When ctx ends it asks the loop to settle the call.
func (c *Conn) await(ctx context.Context, r *Request, id int64, waiting *call) outcome {
	leaving := ctx.Done()
	if leaving == nil && waiting.progress == nil {
		return <-waiting.done // half the price of a select
	}
	for {
		select {
		case o := <-waiting.done:
			select {
			case params := <-waiting.progress:
				waiting.done <- o // breakOff needs the outcome if OnProgress panics
				r.OnProgress(params)
				return <-waiting.done
			default:
				return o
			}
		case params := <-waiting.progress:
			r.OnProgress(params)
		case <-leaving:
			leaving = nil
			c.leaveCall(ctx, id)
		}
	}
}

// leaveCall is leave for a request. It is not inlined, so that the event is not on the
// stack of a caller who waits.
//
//go:noinline
func (c *Conn) leaveCall(ctx context.Context, id int64) { c.leave(ctx, event{id: id}) }

// leave asks the loop to settle a call whose context has ended. The loop does so
// at once, unless the call is settled already.
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

// Notify sends a notification. It returns nil once the link has accepted it, which
// does not mean that the peer has received it. Notify waits for a send slot until ctx
// ends. If the link refuses the notification four times, for about 30 ms, Notify
// fails with transport.ErrBusy. A call would keep waiting, but notifications are soon
// out of date. Every error is a *CallError.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.notify(ctx, method, params, sender{}, false)
}

// TryNotify does what Notify does, but never waits for a send slot or for room on the
// link: it then fails at once with transport.ErrBusy. That does not count against a link
// that accepts nothing.
func (c *Conn) TryNotify(ctx context.Context, method string, params json.RawMessage) error {
	return c.notify(ctx, method, params, sender{}, true)
}

func (c *Conn) notify(ctx context.Context, method string, params json.RawMessage, by sender, once bool) error {
	if o := c.slotFor(ctx, once); o.cause != 0 {
		return &CallError{Method: method, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	}
	waiting := c.spares().takeCall(c.sendSlots())
	m := Message{Method: method, Params: params}
	waiting.out = m.notification(jsonrpc.ID{}, &waiting.route)
	waiting.out.call, waiting.out.stream, waiting.out.notification = waiting, by.stream(), true
	waiting.out.once = once
	posted := c.lend(&event{
		kind: notificationMade, handshake: by.handshake != nil, serving: by.serving != nil || c.serves(ctx), epoch: by.epoch(c), out: &waiting.out,
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

// awaitTaken waits until the link has accepted a notification. If ctx ends first,
// it asks the loop to withdraw the notification.
func (c *Conn) awaitTaken(ctx context.Context, waiting *call) outcome {
	select { // usually this goroutine has run the loop, and the outcome is there
	case o := <-waiting.done:
		c.spares().keepCall(waiting)
		return o
	default:
	}
	select {
	case o := <-waiting.done:
		c.spares().keepCall(waiting)
		return o
	case <-ctx.Done():
		c.leave(ctx, event{out: &waiting.out})
		return <-waiting.done // not reused: the loop may still look for it
	}
}

// sendSlots returns a channel with a value for each send slot that is in use. Most servers
// send only answers, which need no slot, so it is made when it is first needed.
func (c *Conn) sendSlots() chan struct{} {
	c.makeSlots.Do(func() { c.slots = make(chan struct{}, c.options.SendSlots) })
	return c.slots
}

// slotFor takes a send slot for a notification, or waits for one unless once is set.
func (c *Conn) slotFor(ctx context.Context, once bool) outcome {
	if !once {
		return c.acquireSlot(ctx, 0)
	}
	select {
	case c.sendSlots() <- struct{}{}:
		return outcome{}
	default:
		return outcome{ending: ending{Refused, NotSent, transport.ErrBusy}}
	}
}

// acquireSlot waits for a send slot until ctx ends, or for the timeout unless that is
// zero. It returns the outcome of a caller who gets none.
func (c *Conn) acquireSlot(ctx context.Context, timeout time.Duration) outcome {
	if ctx.Err() != nil { // the caller has given up, so nothing is sent
		return outcome{ending: ending{leavingCause(ctx), NotSent, context.Cause(ctx)}}
	}
	slots := c.sendSlots()
	select {
	case slots <- struct{}{}:
		return outcome{}
	default:
	}
	var expired <-chan time.Time
	if timeout > 0 {
		timer := c.spares().takeTimer(timeout)
		defer c.spares().keepTimer(timer)
		expired = timer.C
	}
	select {
	case slots <- struct{}{}:
		return outcome{}
	case <-expired:
		return outcome{ending: ending{TimedOut, NotSent, ErrTimedOut}}
	case <-ctx.Done():
		return outcome{ending: ending{leavingCause(ctx), NotSent, context.Cause(ctx)}}
	}
}

// refusedUnposted is the outcome of a call that no loop accepts.
func (c *Conn) refusedUnposted() outcome {
	if status := c.status.read(); status.State == Closing {
		return outcome{ending: ending{ShutDown, NotSent, status.Reason}}
	}
	return outcome{ending: ending{Refused, NotSent, ErrNotRunning}}
}
