package conn

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/transport"
)

// attempt encodes the request for the present incarnation, posts it and waits for
// its outcome.
func (a *attempts) attempt(ctx context.Context) outcome {
	c, r := a.conn, &a.request
	timeout := c.timeout(r)
	if timeout > 0 {
		timeout -= a.waited
	}
	if o := c.acquireSlot(ctx, timeout); o.cause != 0 {
		return o
	}
	waiting := c.pools().getCall(c.sendSlots())
	if refused := a.post(ctx, waiting); refused.cause != 0 {
		return refused
	}
	a.waiting = waiting
	o := c.await(ctx, r, a.id, waiting)
	a.waiting = nil
	c.pools().putCall(waiting)
	return o
}

// post hands an attempt to the loop, or returns the outcome of one that is refused. It
// is a function of its own so that the event is not on the stack of a caller who waits.
//
//go:noinline
func (a *attempts) post(ctx context.Context, waiting *call) outcome {
	c := a.conn
	if refused := a.encode(waiting); refused.cause != 0 {
		waiting.releaseSlot()
		c.pools().putCall(waiting)
		return refused
	}
	if a.request.OnProgress != nil {
		waiting.progress = make(chan json.RawMessage, 1)
	}
	if !a.lend(ctx, waiting) {
		waiting.releaseSlot()
		return c.refusedUnposted()
	}
	return outcome{}
}

// encode encodes the message of an attempt, or returns the outcome if the attempt is refused.
func (a *attempts) encode(waiting *call) outcome {
	if refused := a.address(); refused.cause != 0 {
		return refused
	}
	out, err := a.frame(&waiting.route)
	if err != nil {
		return outcome{ending: ending{Refused, NotSent, &messageError{err}}}
	}
	out.call, out.stream = waiting, a.stream
	waiting.out = out
	return outcome{}
}

// lend posts the event of an attempt. The event is not in the frame of post or of encode,
// because the stack of every waiting caller would be twice as large.
func (a *attempts) lend(ctx context.Context, waiting *call) (posted bool) {
	c, r := a.conn, &a.request
	ev := event{
		kind: callMade, handshake: a.from == handshaking, serving: a.from == handler || c.serves(ctx), silent: r.Silent,
		epoch: a.epoch, timeout: c.timeout(r), limit: c.limit(r), restarts: r.ProgressRestarts, streaming: r.Streaming,
		out: &waiting.out,
	}
	return c.lend(&ev)
}

// address sets the incarnation that an attempt is for. It refuses the attempt if
// there is none, so that nothing is encoded in vain.
func (a *attempts) address() outcome {
	c := a.conn
	var status Status
	if status.State, status.Epoch = c.status.stateAndEpoch(); status.State != Ready {
		status = c.status.read() // with its reason
	}
	a.epoch = cmp.Or(a.request.Epoch, status.Epoch)
	switch {
	case status.State == Ready || a.from == handshaking:
		return outcome{}
	case status.State == Closing || c.running.Load() == nil:
		return c.refusedUnposted()
	default:
		return outcome{ending: ending{Refused, NotSent, &StateError{status.State, status.Reason}}}
	}
}

// frame returns the frame of an attempt.
func (a *attempts) frame(route *transport.Route) (out outboundFrame, err error) {
	r := &a.request
	if r.MessageFor == nil {
		message := Message{Method: r.Method, Params: r.Params, Name: r.Name, Version: r.Version}
		return message.request(a.id, route), nil
	}
	err = guard(func() error {
		message, err := r.MessageFor.MakeMessage(a.hookCtx, a.id, a.epoch)
		if err != nil {
			return err
		}
		if message.Method = cmp.Or(message.Method, r.Method); message.Body != nil {
			out, err = message.requestOf(a.id, route)
		} else {
			out = message.request(a.id, route)
		}
		return err
	})
	a.conn.reportPanic("Request.MessageFor", err)
	return out, err
}
