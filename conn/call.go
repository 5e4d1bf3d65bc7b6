package conn

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

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

// call implements handle.
func (c *Conn) call(ctx context.Context, r Request, by sender) (json.RawMessage, error) {
	if by.from != program {
		r.Epoch = by.epoch
	}
	if by.from == handler {
		r.Retries, r.WaitForReady = 0, false
	}
	c.counters.calls.Add(1)
	a := c.takeAttempts()
	a.conn, a.request, a.from, a.stream, a.id = c, r, by.from, by.stream, c.nextID()
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
	c.keepAttempts(a)
	return o.result, err
}

// timeout is how long each attempt of a request may take; 0: as long as its context allows.
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

// leavingCause says how a call ends whose context has ended.
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

// notify implements handle.
func (c *Conn) notify(ctx context.Context, method string, params json.RawMessage, by sender, once bool) error {
	if o := c.slotFor(ctx, once); o.cause != 0 {
		return &CallError{Method: method, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	}
	waiting := c.pools().getCall(c.sendSlots())
	m := Message{Method: method, Params: params}
	waiting.out = m.notification(jsonrpc.ID{}, &waiting.route)
	waiting.out.call, waiting.out.stream, waiting.out.notification = waiting, by.stream, true
	waiting.out.once = once
	if by.from == program {
		_, by.epoch = c.status.stateAndEpoch()
	}
	posted := c.lend(&event{
		kind: notificationMade, handshake: by.from == handshaking, serving: by.from == handler || c.serves(ctx), epoch: by.epoch, out: &waiting.out,
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
		c.pools().putCall(waiting)
		return o
	default:
	}
	select {
	case o := <-waiting.done:
		c.pools().putCall(waiting)
		return o
	case <-ctx.Done():
		c.leave(ctx, event{out: &waiting.out})
		return <-waiting.done // not reused: the loop may still look for it
	}
}

// sendSlots returns a channel with a value for each send slot that is in use. Most servers send
// only answers, which need no slot, so it is made when it is first needed. Two callers that need
// it first at the same time agree on one of two channels.
func (c *Conn) sendSlots() chan struct{} {
	if c.slots.Load() == nil {
		made := make(chan struct{}, c.options.SendSlots)
		c.slots.CompareAndSwap(nil, &made)
	}
	return *c.slots.Load()
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
		timer := c.pools().getTimer(timeout)
		defer c.pools().putTimer(timer)
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
