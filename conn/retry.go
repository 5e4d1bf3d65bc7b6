package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// attempts is the retry loop of one Call. It runs on the caller's goroutine (ADR-0023).
type attempts struct {
	conn    *Conn
	request Request
	from    origin           // who makes the call
	stream  transport.Stream // the stream that its messages go out on
	hookCtx context.Context  // that Hooks.RequestStarted returned
	number  uint64           // telemetry.RequestStarted.Correlation; 0 without that hook
	began   instant          // when its first attempt began

	// The present attempt:
	id      int64
	epoch   uint64        // the incarnation that the attempt is for
	waiting *call         // the call that the loop settles; nil before and after that
	started time.Time     // when the attempt began; only for a Streaming request
	tried   instant       // when the attempt began, or began again because the link was busy
	waited  time.Duration // how long the link has been busy

	// The attempts before it:
	retries  int       // how many earlier attempts there were
	executed bool      // the peer may have executed one of them
	earlier  []Attempt // the newest of them
	delays   *schedule // the delays between attempts on the same link; nil until needed
}

// takeAttempts returns empty attempts. On the stack of a caller who waits, they would make
// that twice as large.
func (c *Conn) takeAttempts() *attempts {
	if a, ok := c.pools().attempts.Get().(*attempts); ok {
		return a
	}
	return new(attempts)
}

// keepAttempts keeps the attempts of a call that has ended without a panic.
func (c *Conn) keepAttempts(over *attempts) {
	*over = attempts{}
	c.pools().attempts.Put(over)
}

// run makes attempts until one ends the call, and counts the call.
func (a *attempts) run(ctx context.Context) outcome {
	o := a.repeat(ctx)
	a.count(&o)
	return o
}

// count counts the call by its outcome. The peer may have executed an earlier attempt,
// whatever became of the last.
func (a *attempts) count(o *outcome) {
	if o.delivery == NotSent && a.executed {
		o.delivery = Unknown
	}
	a.conn.counters.count(o.cause, o.delivery)
}

// errBroken is the error of a call that has no caller any more.
var errBroken = errors.New("conn: OnProgress or OnAttempt panicked, or ended the goroutine")

// breakOff ends a call whose OnProgress or OnAttempt panics or ends the goroutine.
func (a *attempts) breakOff() {
	o := outcome{ending: ending{Cancelled, NotSent, errBroken}}
	if a.waiting != nil {
		a.conn.post(event{kind: callLeft, id: a.id, err: errBroken})
		o = <-a.waiting.done
	}
	a.count(&o)
	_ = a.end(o) // no caller gets the error
}

func (a *attempts) repeat(ctx context.Context) outcome {
	a.began = a.conn.now()
	for a.tried = a.began; ; a.tried = a.conn.now() {
		if a.request.Streaming {
			a.started = time.Now()
		}
		o := a.attempt(ctx)
		if o.cause == Refused && errors.Is(o.err, transport.ErrBusy) {
			if a.waited += a.conn.now() - a.tried; !a.isPatient() {
				o.cause, o.err = TimedOut, fmt.Errorf("%w: %w", ErrTimedOut, o.err)
				return o
			}
			a.id = a.conn.nextID() // the attempt begins again, with a new id, and still counts as one attempt
			continue
		}
		a.waited = 0
		gone := a.request.Epoch != 0 && a.conn.status.isGone(a.request.Epoch)
		switch {
		case gone && isTransient(o) && !errors.Is(o.err, ErrStale):
			o.err = fmt.Errorf("%w: %w", ErrStale, o.err)
			return o
		case gone || o.cause == Answered && !a.request.keptOpen():
			return o
		case a.request.WaitForReady && isTransient(o):
			if err := a.awaitReady(ctx); err != nil {
				return neverReady(ctx, err)
			}
		case a.mayRepeat(o):
			if err := a.pause(ctx, o); err != nil {
				return neverReady(ctx, err)
			}
			a.id = a.conn.nextID()
			a.conn.counters.retries.Add(1)
		default:
			return o
		}
	}
}

// isPatient reports whether the attempt may still wait for room on the link.
func (a *attempts) isPatient() bool {
	timeout := a.conn.timeout(&a.request)
	return timeout == 0 || a.waited < timeout
}

// keptOpen reports whether the peer cannot end the request by answering it.
func (r *Request) keptOpen() bool { return r.Streaming && r.Retries < 0 }

// mayRepeat reports whether another attempt may follow one that ended like this.
func (a *attempts) mayRepeat(o outcome) bool {
	r := &a.request
	switch {
	case r.Retries >= 0 && a.retries >= min(r.Retries, maxRetries) || a.conn.State() == Closing:
		return false
	case o.cause == LinkLost:
		return (o.delivery == NotSent || r.Repeatable) && (r.keptOpen() || !isTooLarge(o.err))
	case r.keptOpen():
		return r.mayReopen(o)
	default:
		return isTransient(o) || isOverloaded(o)
	}
}

// isTooLarge reports whether a message of this request alone was above the limit of its link,
// which the next one would be too. If the whole link was lost, it may have been another.
func isTooLarge(err error) bool {
	var reason Reason
	ofLink := errors.As(err, &reason) && reason.Kind == Oversized
	return !ofLink && errors.As(err, new(*transport.OversizedError))
}

// isOverloaded reports whether the peer has refused an attempt for now, by its HTTP status or by a
// JSON-RPC error.
func isOverloaded(o outcome) bool {
	var status *transport.StatusError
	return o.delivery == NotSent && (o.cause == PeerError || errors.As(o.err, &status) && status.Overloaded())
}

// mayReopen reports whether to send a request that is kept open again after an
// answer, an error of the peer's or a refusal. That is pointless where the peer
// will never accept the request, or the program could not encode it.
func (r *Request) mayReopen(o outcome) bool {
	var fault *jsonrpc.Error
	switch {
	case o.cause == Answered:
		return r.Repeatable
	case errors.As(o.err, &fault):
		return r.Repeatable && fault.Code != jsonrpc.CodeMethodNotFound &&
			fault.Code != jsonrpc.CodeInvalidParams && fault.Code != jsonrpc.CodeInvalidRequest
	case o.cause == PeerError: // the answer was not valid
		return r.Repeatable
	case errors.Is(o.err, ErrDraining) || errors.As(o.err, new(*messageError)):
		return false
	default:
		return o.cause == Refused
	}
}

// A messageError is the error of Request.MessageFor.
type messageError struct{ err error }

func (e *messageError) Error() string { return e.err.Error() }
func (e *messageError) Unwrap() error { return e.err }

// isTransient reports whether the Conn refused an attempt for its state, which
// may change.
func isTransient(o outcome) bool {
	if o.cause != Refused {
		return false
	}
	var state *StateError
	return errors.As(o.err, &state) || errors.Is(o.err, ErrStale) || errors.Is(o.err, ErrNotRunning)
}

// neverReady is the outcome of a call for which the Conn did not become ready.
func neverReady(ctx context.Context, err error) outcome {
	if ctx.Err() == nil {
		return outcome{ending: ending{ShutDown, NotSent, err}}
	}
	return outcome{ending: ending{leavingCause(ctx), NotSent, err}}
}

const (
	// maxRetries is the largest limit that Request.Retries can set. Negative Retries
	// set none.
	maxRetries = 1000

	// maxRemembered is how many attempts a call without a limit remembers.
	maxRemembered = 16
)

// pause reports an attempt that has ended, and waits until the next may begin: as
// long as the peer has asked for, then, if the link is still the same, for a backoff
// of the call's own, and until the Conn is ready.
func (a *attempts) pause(ctx context.Context, o outcome) error {
	over := Attempt{ID: a.id, Epoch: a.epoch, Cause: o.cause, Delivery: o.delivery, Err: o.err}
	if a.request.Retries < 0 && len(a.earlier) == maxRemembered {
		a.earlier = slices.Delete(a.earlier, 0, 1)
	}
	a.earlier = append(a.earlier, over)
	a.retries++
	a.executed = a.executed || o.delivery != NotSent
	a.tellRetried(over)
	if a.request.OnAttempt != nil {
		a.request.OnAttempt(over)
	}
	if wait := askedDelay(o.err); wait > 0 && a.from != handshaking {
		return a.waitAsked(ctx, wait)
	}
	if status := a.conn.Status(); (status.State == Ready || a.from == handshaking) && status.Epoch == a.epoch {
		a.delay(ctx, status)
	}
	return a.awaitReady(ctx)
}

// awaitReady waits until the Conn is ready. A call that is bound to an
// incarnation waits no longer than that exists, since the next attempt will be
// refused. A call of the handshake does not wait at all.
func (a *attempts) awaitReady(ctx context.Context) error {
	bound := a.request.Epoch
	for status := a.conn.Status(); bound != 0 && status.State != Ready && status.State != Closing; status = a.conn.Status() {
		if a.from == handshaking || a.conn.status.isGone(bound) {
			return nil
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return a.conn.AwaitReady(ctx)
		}
	}
	return a.conn.AwaitReady(ctx)
}

// waitAsked waits as long as the peer has asked for, even if the link is lost
// meanwhile, and then until the Conn is ready.
func (a *attempts) waitAsked(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for bound := a.request.Epoch; ; {
		status := a.conn.Status()
		if status.State == Closing || bound != 0 && a.conn.status.isGone(bound) {
			return a.awaitReady(ctx)
		}
		select {
		case <-status.Changed():
		case <-timer.C:
			return a.awaitReady(ctx)
		case <-ctx.Done():
			return a.awaitReady(ctx)
		}
	}
}

// delay waits for the next delay of the schedule to pass, or for the status of
// the Conn to change.
func (a *attempts) delay(ctx context.Context, status Status) {
	proven := a.request.Streaming && time.Since(a.started) >= a.conn.options.ProvenAfter
	if a.delays == nil || proven {
		a.delays = newSchedule(a.conn.options)
	}
	timer := time.NewTimer(a.delays.next(random()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-status.Changed():
	case <-ctx.Done():
	}
}

// begin tells the hooks that a call begins.
func (a *attempts) begin(ctx context.Context) {
	hooks := &a.conn.options.Hooks
	if a.hookCtx = ctx; hooks.RequestStarted == nil {
		return
	}
	a.number = randomNumber()
	event := telemetry.RequestStarted{
		Conn: a.conn.own.name, Method: a.request.Method, Target: a.request.Target, ID: a.id, At: time.Now(), Correlation: a.number,
	}
	a.conn.reporter().tell(func() {
		if derived := hooks.RequestStarted(ctx, event); derived != nil {
			a.hookCtx = derived
		}
	})
}

// tellRetried tells the hooks of an attempt.
func (a *attempts) tellRetried(over Attempt) {
	hook := a.conn.options.Hooks.Retried
	if hook == nil {
		return
	}
	event := telemetry.Retried{
		Conn: a.conn.own.name, Method: a.request.Method, Target: a.request.Target, ID: over.ID, Epoch: over.Epoch, Attempt: a.retries,
		Cause: over.Cause.String(), Delivery: over.Delivery.String(), Duration: a.conn.now() - a.tried, Err: over.Err,
		Correlation: a.number,
	}
	a.conn.reporter().tell(func() { hook(a.hookCtx, event) })
}

// end tells the hooks how the call ended, and returns the error for its caller.
func (a *attempts) end(o outcome) error {
	var err error
	if o.cause != Answered {
		err = &CallError{Method: a.request.Method, ID: a.id, Cause: o.cause, Delivery: o.delivery, Err: o.err, Attempts: a.earlier, retries: a.retries}
	}
	hook := a.conn.options.Hooks.RequestStopped
	if hook == nil {
		return err
	}
	now := o.at
	if now == 0 {
		now = a.conn.now()
	}
	event := telemetry.RequestStopped{
		Conn: a.conn.own.name, Method: a.request.Method, Target: a.request.Target, ID: a.id, Attempts: a.total(),
		Cause: o.cause.String(), Delivery: o.delivery.String(), Duration: now - a.began, Last: now - a.tried, Err: err,
		Correlation: a.number,
	}
	a.conn.reporter().tell(func() { hook(a.hookCtx, event) })
	return err
}

// total counts the attempts. The call may have ended while it waited for another.
func (a *attempts) total() int {
	if last := len(a.earlier) - 1; last >= 0 && a.earlier[last].ID == a.id {
		return a.retries
	}
	return a.retries + 1
}
