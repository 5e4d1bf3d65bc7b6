package conn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// A Conn is a connection to one peer that outlives its links. Create one with
// New or Accept, and start it with Run or Start. Its methods are safe for
// concurrent use.
type Conn struct {
	record
	running atomic.Pointer[loop]          // nil outside Start and Run
	slots   atomic.Pointer[chan struct{}] // see sendSlots; nil before the first message
}

// New returns an initiator (a client). Once it runs, it opens a link through t,
// and another after a delay whenever a link is lost. New panics if t is nil.
func New(t transport.Transport, o Options) *Conn {
	if t == nil {
		panic("conn: New needs a Transport")
	}
	c := newConn(initiator, Starting, o)
	c.transport = t
	_ = guard(func() error { c.isProcess = transport.TraitsOf(t).StartsProcess; return nil })
	return c
}

// Accept returns an acceptor (a server) for a link that a listener has accepted.
// Once it runs, it owns the link, and it closes when the link is lost. Accept
// panics if link is nil.
func Accept(link transport.Link, o Options) *Conn {
	if link == nil {
		panic("conn: Accept needs a Link")
	}
	c := newConn(acceptor, Initializing, o)
	c.link = link
	return c
}

func newConn(r role, initial State, o Options) *Conn {
	common, own := o.split()
	c := &Conn{record: record{options: common, own: own, role: r}}
	c.caller = caller{c, time.Now().Add(-time.Nanosecond)} // so that no instant is zero
	c.status.replace(Status{State: initial, Since: c.born})
	return c
}

// Name returns Options.Name.
func (c *Conn) Name() string { return c.own.name }

// Run starts the Conn and waits until it ends. It returns nil after Stop, after
// Close, when ctx ends (which stops the Conn), and when the peer of an acceptor ends
// the connection properly. Otherwise it returns the Reason for which the Conn closed.
// If a handler or another callback is still running, the error also contains a
// *StuckError. If the link could not be closed, it contains the error of the link.
//
// Run returns ErrRunning if the Conn is running already, and ErrNotRunning if it
// has closed.
//
// If the Conn's own goroutine panics, for instance in Send or Grant of the link, Run
// returns a *PanicError. All calls end as LinkLost; their delivery is Unknown
// unless the request was certainly not sent. An initiator may then be run again and
// keeps its ids and epochs; an acceptor is closed. A panic in any other callback
// affects only the event for which the callback was called.
//
// If ctx ends with a cause that wraps ErrInterrupted, an initiator can be run again,
// too: it ends all calls as LinkLost, closes the link within Options.StopGrace, and
// goes to the state Starting. Run returns the cause. This is how a supervisor restarts
// a Conn: it cancels it and starts it again, and callers that wait for the Conn to be ready
// keep waiting. An acceptor stops instead, and so does a Conn that was already stopping or
// closing.
func (c *Conn) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	l, held, err := c.enter(ctx, func(err error) { ended <- err })
	if err != nil {
		return err
	}
	l.mailbox.resume(held) // on another goroutine, because the first events would grow the stack of this caller, who waits for a long time
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		l.cancel(context.Cause(ctx))
		return <-ended
	}
}

// Start starts the Conn as Run does, but does not wait until it ends. It returns once
// an acceptor has bound its link, or an initiator has begun to open one. When the
// Conn ends, it calls onEnd once, on a separate goroutine, with what Run would have
// returned. Done may be closed slightly earlier. If Start fails, with ErrRunning or
// ErrNotRunning, onEnd is not called.
//
// A Conn has a goroutine while it works and for 100 to 120 ms after that. An idle
// Conn has none.
func (c *Conn) Start(ctx context.Context, onEnd func(error)) error {
	return c.start(ctx, onEnd, false)
}

func (c *Conn) start(ctx context.Context, onEnd func(error), endsInClose bool) error {
	l, held, err := c.enter(ctx, onEnd)
	if err != nil {
		return err
	}
	l.endsInClose = endsInClose
	l.watch(ctx)
	l.start(held)
	return nil
}

// enter gives the Conn a loop, whose mailbox is open. The caller has the loop.
func (c *Conn) enter(ctx context.Context, onEnd func(error)) (*loop, actor.Held, error) {
	l := newLoop(&c.record, ctx)
	if !c.running.CompareAndSwap(nil, l) {
		return nil, actor.Held{}, ErrRunning
	}
	if c.State() == Closing {
		c.running.Store(nil)
		return nil, actor.Held{}, ErrNotRunning
	}
	l.continueConn()
	l.onEnd = onEnd
	if why := context.Cause(ctx); why != nil && !errors.Is(why, ErrInterrupted) {
		l.forEnd().cancelled = why
	}
	return l, l.mailbox.open(l.runOwn), nil
}

// post implements handle.
func (c *Conn) post(ev event) bool {
	l := c.running.Load()
	return l != nil && l.mailbox.post(ev)
}

// lend posts an event, and lends this goroutine to the loop if that has nothing to
// do. It reports false when no loop will take the event.
func (c *Conn) lend(ev *event) bool {
	l := c.running.Load()
	return l != nil && l.lend(ev)
}

// left implements handle.
func (c *Conn) left() { c.running.Store(nil) }

// Done returns a channel that is closed when the Conn has closed for good.
func (c *Conn) Done() <-chan struct{} { return c.done.Wait() }

// AwaitReady waits until the Conn is ready. If the Conn closes, AwaitReady returns
// the Reason. If ctx ends first, AwaitReady returns an error that wraps its cause and
// says what the Conn was waiting for.
func (c *Conn) AwaitReady(ctx context.Context) error {
	if c.State() == Ready {
		return nil
	}
	for {
		status := c.Status()
		switch status.State {
		case Ready:
			return nil
		case Closing:
			return status.Reason
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return fmt.Errorf("conn: not ready, %s (%w): %w", status.State, status.notReadyReason(), context.Cause(ctx))
		}
	}
}

// notReadyReason returns the most useful reason for not being ready.
func (s *Status) notReadyReason() Reason {
	if s.LastFailure.Kind != "" {
		return s.LastFailure
	}
	return s.Reason
}

// Wake ends a backoff, so that the Conn reconnects immediately. Call it when you know
// that the peer is back. In other states it does nothing.
func (c *Conn) Wake() { c.post(event{kind: woken}) }

// Stop ends all calls immediately and closes the link within Options.StopGrace. It
// does not wait for that; use Done to wait. Stop may be called from any goroutine,
// and more than once. A Conn that is not running stops as soon as Run is called.
func (c *Conn) Stop() {
	c.stopping.Store(true)
	c.post(event{kind: stopAsked})
}

// Close drains the Conn: it refuses new calls, waits for work in flight, closes
// the link, and returns when all of that is done. Handlers that are still running
// may make calls meanwhile. The handler gets the notifications that have come in.
//
// Work that has not finished at the deadline of ctx, or after Options.DrainGrace if
// ctx has none, is stopped. Then Close returns an error that says how much was left,
// and that matches context.DeadlineExceeded. If ctx ends for another reason, Close
// stops everything immediately and returns the cause.
//
// Close returns ErrNotRunning if the Conn is not running, or if its Run is
// interrupted or panics in the meantime. Such a Conn stops as soon as Run is called.
func (c *Conn) Close(ctx context.Context) error {
	grace := c.options.DrainGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = time.Until(deadline) / 100 * 99 // the link has the remaining time to close
	}
	l := c.running.Load() // Close does not wait for a later loop
	asked := l != nil && l.lendToEnd(&event{kind: drainAsked, timeout: max(grace, 1)})
	if !asked {
		c.Stop()
	}
	if l == nil {
		return c.closed()
	}
	select {
	case <-c.done.Wait():
		if asked {
			return c.cutShort()
		}
	case <-l.ended.Wait():
		c.Stop() // the loop may have ended before it got the event
	case <-ctx.Done():
		c.Stop()
		<-l.ended.Wait()
		if err := c.cutShort(); asked && err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return err // the link or a handler took the rest of the time
		}
		return context.Cause(ctx)
	}
	return c.closed()
}

// cutShort returns an error if a drain was stopped before all work had finished.
func (c *Conn) cutShort() error {
	why := c.status.read().Reason
	if why.Kind != Drained || why.Err == nil {
		return nil
	}
	return fmt.Errorf("conn: %w (%w)", why, context.DeadlineExceeded)
}

// closed returns ErrNotRunning unless the Conn is closed for good.
func (c *Conn) closed() error {
	if c.done.HasFired() {
		return nil
	}
	return ErrNotRunning
}
