package conn

import (
	"cmp"
	"context"
	"encoding/json"
)

// attempt encodes the request for the present incarnation, posts it and waits.
func (m *making) attempt(ctx context.Context) outcome {
	c, r := m.conn, &m.request
	if err := c.acquireSlot(ctx); err != nil {
		return outcome{ending: ending{leavingCause(ctx), NotSent, err}}
	}
	waiting := c.newCall()
	ev, refused := m.encode(ctx, waiting)
	if refused.cause != 0 {
		waiting.releaseSlot()
		c.calls.Put(waiting)
		return refused
	}
	if r.OnProgress != nil {
		waiting.progress = make(chan json.RawMessage, 1)
	}
	if !c.post(ev) {
		waiting.releaseSlot()
		return c.refusedUnposted()
	}
	o := c.await(ctx, r, m.id, waiting)
	c.calls.Put(waiting)
	return o
}

// encode makes the event of an attempt, or says why there is none to be made.
func (m *making) encode(ctx context.Context, waiting *call) (event, outcome) {
	c, r := m.conn, &m.request
	if refused := m.address(); refused.cause != 0 {
		return event{}, refused
	}
	message, err := m.message()
	if err != nil {
		return event{}, outcome{ending: ending{Refused, NotSent, &messageError{err}}}
	}
	out := message.request(m.id, &waiting.route)
	out.call, out.stream = waiting, m.by.stream()
	return event{
		kind: callMade, handshake: m.by.handshake != nil, serving: m.by.serving != nil || c.serves(ctx), silent: r.Silent,
		epoch: m.epoch, timeout: c.timeout(r), limit: c.limit(r), restarts: r.ProgressRestarts, streaming: r.Streaming,
		out: out,
	}, outcome{}
}

// address says which incarnation an attempt is for. One that nobody serves is
// refused here, so that nothing is encoded for it.
func (m *making) address() outcome {
	c, status := m.conn, m.conn.status.Load()
	m.epoch = cmp.Or(m.request.Epoch, status.Epoch)
	switch {
	case status.State == Ready || m.by.handshake != nil:
		return outcome{}
	case status.State == Closing || c.running.Load() == nil:
		return c.refusedUnposted()
	default:
		return outcome{ending: ending{Refused, NotSent, &StateError{status.State, status.Reason}}}
	}
}

func (m *making) message() (message Message, err error) {
	r := &m.request
	if r.MessageFor == nil {
		return Message{Method: r.Method, Params: r.Params, Name: r.Name, Version: r.Version}, nil
	}
	err = guard(func() (err error) { message, err = r.MessageFor(m.id, m.epoch); return err })
	m.conn.reportPanic("Request.MessageFor", err)
	message.Method = cmp.Or(message.Method, r.Method)
	return message, err
}
