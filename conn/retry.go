package conn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// An Attempt is one making of a call that has ended, and did not end the call.
type Attempt struct {
	ID       int64  // no other attempt has it
	Epoch    uint64 // the incarnation it was made for
	Cause    Cause
	Delivery Delivery
	Err      error
}

// A making is one call on its caller's goroutine, with all its attempts
// (ADR-0023).
type making struct {
	conn    *Conn
	request Request
	by      origin
	told    context.Context // the hooks'
	began   time.Time       // zero when nobody asks

	id      int64     // of the present attempt
	epoch   uint64    // the incarnation it is for
	started time.Time // when it began; only for a Streaming request
	retries int       // how many attempts came before it
	unknown bool      // one of those may have been executed
	earlier []Attempt // the newest of those
	delays  *schedule // between attempts on one link; nil until needed
}

// whole makes attempts until one ends the call. What an earlier one may have
// done stays possible, whatever became of the last.
func (m *making) whole(ctx context.Context) outcome {
	o := m.attempts(ctx)
	if o.delivery == NotSent && m.unknown {
		o.delivery = Unknown
	}
	return o
}

func (m *making) attempts(ctx context.Context) outcome {
	for {
		if m.request.Streaming {
			m.started = time.Now()
		}
		o := m.attempt(ctx)
		gone := m.request.Epoch != 0 && m.conn.gone(m.request.Epoch)
		switch {
		case gone && passes(o) && !errors.Is(o.err, ErrStale):
			o.err = fmt.Errorf("%w: %w", ErrStale, o.err)
			return o
		case gone || o.cause == Answered && !m.request.keptOpen():
			return o
		case m.request.WaitForReady && passes(o):
			if err := m.awaitReady(ctx); err != nil {
				return neverReady(ctx, err)
			}
		case m.repeats(o):
			if err := m.pause(ctx, o); err != nil {
				return neverReady(ctx, err)
			}
			m.id = m.conn.nextID()
			m.conn.counters.retries.Add(1)
		default:
			return o
		}
	}
}

// keptOpen reports whether the request is made again whatever ends it.
func (r *Request) keptOpen() bool { return r.Streaming && r.Retries < 0 }

// repeats reports whether another attempt may follow one that ended like this.
func (m *making) repeats(o outcome) bool {
	r := &m.request
	switch {
	case r.Retries >= 0 && m.retries >= min(r.Retries, maxRetries) || m.conn.State() == Closing:
		return false
	case o.cause == LinkLost:
		return o.delivery == NotSent || r.Repeatable
	case r.keptOpen():
		return r.reopens(o)
	default:
		return passes(o)
	}
}

// reopens reports whether a request that is kept open is made again after an
// answer, an error or a refusal of the peer's. What the peer will never accept
// and what the program could not encode is not.
func (r *Request) reopens(o outcome) bool {
	var fault *jsonrpc.Error
	switch {
	case o.cause == Answered:
		return r.Repeatable
	case errors.As(o.err, &fault):
		return r.Repeatable && fault.Code != jsonrpc.CodeMethodNotFound &&
			fault.Code != jsonrpc.CodeInvalidParams && fault.Code != jsonrpc.CodeInvalidRequest
	case errors.Is(o.err, ErrDraining) || errors.As(o.err, new(*messageError)):
		return false
	default:
		return o.cause == Refused
	}
}

// A messageError is that of a Request.MessageFor.
type messageError struct{ err error }

func (e *messageError) Error() string { return e.err.Error() }
func (e *messageError) Unwrap() error { return e.err }

// passes tells a refusal that may be over once the Conn is ready from one that
// is not.
func passes(o outcome) bool {
	if o.cause != Refused {
		return false
	}
	var state *StateError
	return errors.As(o.err, &state) || errors.Is(o.err, ErrStale) || errors.Is(o.err, ErrNotRunning)
}

// gone reports whether another incarnation than this one is present, or none.
func (c *Conn) gone(epoch uint64) bool {
	status := c.status.Load()
	return epoch != status.Epoch || epoch == status.lost
}

// neverReady is the outcome of a call that has waited for ready in vain.
func neverReady(ctx context.Context, err error) outcome {
	if ctx.Err() == nil {
		return outcome{ending: ending{ShutDown, NotSent, err}}
	}
	return outcome{ending: ending{leavingCause(ctx), NotSent, err}}
}

const (
	// maxRetries is the most that Request.Retries can ask for, unless it asks
	// for no bound.
	maxRetries = 1000

	// maxRemembered bounds what a call without such a bound remembers.
	maxRemembered = 16
)

// pause tells of an attempt that has ended, and waits until the next may be
// made: for the Conn to be ready, whose backoff delays that, or, where only the
// stream was lost, for as long as the first backoffs would.
func (m *making) pause(ctx context.Context, o outcome) error {
	over := Attempt{ID: m.id, Epoch: m.epoch, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	if m.request.Retries < 0 && len(m.earlier) == maxRemembered {
		m.earlier = slices.Delete(m.earlier, 0, 1)
	}
	m.earlier = append(m.earlier, over)
	m.retries++
	m.unknown = m.unknown || o.delivery == Unknown
	m.retried(over)
	if m.request.OnAttempt != nil {
		m.request.OnAttempt(over)
	}
	if status := m.conn.Status(); (status.State == Ready || m.by.handshake != nil) && status.Epoch == m.epoch {
		m.rest(ctx, status)
	}
	return m.awaitReady(ctx)
}

// awaitReady waits for the Conn to be ready, or for the incarnation that the
// call is bound to to be over, which the next attempt is told. A handshake has
// only that to wait for.
func (m *making) awaitReady(ctx context.Context) error {
	bound := m.request.Epoch
	for status := m.conn.Status(); bound != 0 && status.State != Ready && status.State != Closing; status = m.conn.Status() {
		if m.by.handshake != nil || m.conn.gone(bound) {
			return nil
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return m.conn.AwaitReady(ctx)
		}
	}
	return m.conn.AwaitReady(ctx)
}

// rest waits for the next delay, or for any change of the Conn's.
func (m *making) rest(ctx context.Context, status Status) {
	proven := m.request.Streaming && time.Since(m.started) >= m.conn.options.ProvenAfter
	if m.delays == nil || proven {
		m.delays = newSchedule(&m.conn.options)
	}
	timer := time.NewTimer(m.delays.next(random()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-status.Changed():
	case <-ctx.Done():
	}
}

// begin tells the hooks that a call begins.
func (m *making) begin(ctx context.Context) {
	hooks := &m.conn.options.Hooks
	if m.told = ctx; hooks.RequestStopped != nil {
		m.began = time.Now()
	}
	if hooks.RequestStarted == nil {
		return
	}
	event := telemetry.RequestStarted{Conn: m.conn.options.Name, Method: m.request.Method, ID: m.id, At: time.Now()}
	m.conn.tell(func() {
		if derived := hooks.RequestStarted(ctx, event); derived != nil {
			m.told = derived
		}
	})
}

// retried tells the hooks of an attempt.
func (m *making) retried(over Attempt) {
	hook := m.conn.options.Hooks.Retried
	if hook == nil {
		return
	}
	event := telemetry.Retried{
		Conn: m.conn.options.Name, Method: m.request.Method, ID: over.ID, Epoch: over.Epoch, Attempt: m.retries,
		Cause: over.Cause.String(), Delivery: over.Delivery.String(), Err: over.Err,
	}
	m.conn.tell(func() { hook(m.told, event) })
}

// end is what the caller is told of the end of a call, and the hooks before.
func (m *making) end(o outcome) error {
	var err error
	if o.cause != Answered {
		err = &CallError{Method: m.request.Method, ID: m.id, Cause: o.cause, Delivery: o.delivery, Err: o.err, Attempts: m.earlier, retries: m.retries}
	}
	hook := m.conn.options.Hooks.RequestStopped
	if hook == nil {
		return err
	}
	event := telemetry.RequestStopped{
		Conn: m.conn.options.Name, Method: m.request.Method, ID: m.id, Attempts: m.made(),
		Cause: o.cause.String(), Delivery: o.delivery.String(), Duration: time.Since(m.began), Err: err,
	}
	m.conn.tell(func() { hook(m.told, event) })
	return err
}

// made is how many attempts there were. The last may have been waited for in
// vain.
func (m *making) made() int {
	if last := len(m.earlier) - 1; last >= 0 && m.earlier[last].ID == m.id {
		return m.retries
	}
	return m.retries + 1
}

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
