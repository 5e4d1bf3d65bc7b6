package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A Conn is a connection to one peer that outlives its links. Make one with
// New or Accept, have Run run, and use the other methods from any goroutine.
type Conn struct {
	options   Options
	role      role
	transport transport.Transport // of an initiator
	link      transport.Link      // of an acceptor, until Run takes it

	born          time.Time
	lastID        atomic.Int64
	slots         chan struct{}
	calls         sync.Pool            // of *call
	running       atomic.Pointer[loop] // nil outside Start and Run
	notifications *notifications
	status        atomic.Pointer[Status]
	counters      counters
	background    atomic.Pointer[background] // nil before the first
	stopping      atomic.Bool
	done          chan struct{} // closed when the Conn is closed for good
	epoch         uint64        // where the next Run continues
	gap           *gap          // the loop's: since it was ready; nil while it is, and before it has been
}

// New makes an initiator: it opens links through t, and opens another, after a
// delay, whenever one is lost. It does nothing until Run runs. It panics when t
// is nil.
func New(t transport.Transport, o Options) *Conn {
	if t == nil {
		panic("conn: New needs a Transport")
	}
	c := newConn(initiator, Starting, o)
	c.transport = t
	return c
}

// Accept makes an acceptor on a link that a listener was handed. It closes
// when the link is lost. Run takes the link over. It panics when link is nil.
func Accept(link transport.Link, o Options) *Conn {
	if link == nil {
		panic("conn: Accept needs a Link")
	}
	c := newConn(acceptor, Initializing, o)
	c.link = link
	return c
}

func newConn(r role, initial State, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{
		options: o,
		role:    r,
		born:    time.Now().Add(-time.Nanosecond), // so that no instant is zero
		slots:   make(chan struct{}, o.SendSlots),
		done:    make(chan struct{}),
	}
	c.notifications = &notifications{
		handle: c.handle, eased: func() { c.post(event{kind: eased}) },
		bound: o.MaxNotifications, boundSize: o.MaxHeld,
	}
	c.status.Store(&Status{State: initial, Since: c.born, changed: make(chan struct{})})
	return c
}

// Name is Options.Name.
func (c *Conn) Name() string { return c.options.Name }

// Owner is Options.Owner.
func (c *Conn) Owner() any { return c.options.Owner }

// Run starts the Conn and waits for its end. It returns nil after Stop, after
// Close, when ctx has ended (which means Stop), and when the peer of an acceptor
// has left in good order; otherwise it returns the Reason that the Conn closed
// for. Run joins to that a *StuckError if code that the Conn was given still
// runs, and the error of a link that could not be closed cleanly.
//
// A panic on the Conn's own goroutine, which also calls Send and Grant of the
// link, ends Run with a *PanicError. Every call ends as LinkLost, with the
// delivery Unknown unless the request surely never left. An initiator may then
// be run again: it keeps its ids and its epochs. A panic in other code that the
// Conn was given costs only what that code was called for.
//
// If ctx ends with a cause that wraps ErrInterrupted, an initiator does the same
// without a panic: it ends all calls as LinkLost, closes the link within
// Options.StopGrace, enters the state Starting for the Reason Interrupted, and
// Run returns that cause. A supervisor that restarts the Conn this way can call
// Run again; whoever waits for the Conn to be ready goes on waiting. An acceptor
// stops instead, and so does a Conn that was stopping or closing.
//
// Run returns ErrRunning if the Conn runs already, and ErrNotRunning if it has
// closed.
func (c *Conn) Run(ctx context.Context) error {
	over := make(chan error, 1)
	l, err := c.start(ctx, false, func(err error) { over <- err })
	if err != nil {
		return err
	}
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		l.endWith(ctx)
		return <-over
	}
}

// Start is Run without the wait: it returns once the link of an acceptor is
// bound, or an initiator has begun to open one. When the Conn ends, over is
// called once, on a goroutine of the Conn, with what Run would return; Done may
// be closed a little before. Start itself fails with ErrRunning or ErrNotRunning,
// as Run does, and then over is not called.
//
// A Conn has a goroutine while there is something to do and for 100 ms after
// that. An idle Conn has none, and costs only memory.
func (c *Conn) Start(ctx context.Context, over func(error)) error {
	_, err := c.start(ctx, true, over)
	return err
}

// start has a loop run, and watch over the context unless its caller does. It
// uses a stack of its own: that of Run's caller would never shrink again, and
// such callers are many and wait for long.
func (c *Conn) start(ctx context.Context, watch bool, over func(error)) (l *loop, err error) {
	begun := make(chan error, 1)
	go func() {
		entered, err := c.enter(ctx, over)
		if err != nil {
			begun <- err
			return
		}
		if watch {
			entered.watch(ctx)
		}
		l, entered.begun = entered, begun
		entered.run()
	}()
	err = <-begun
	return l, err
}

// enter gives the Conn a loop, whose mailbox is open.
func (c *Conn) enter(ctx context.Context, over func(error)) (*loop, error) {
	l := newLoop(c, ctx)
	if !c.running.CompareAndSwap(nil, l) {
		return nil, ErrRunning
	}
	if c.State() == Closing {
		c.running.Store(nil)
		return nil, ErrNotRunning
	}
	l.over = over
	if why := context.Cause(ctx); why != nil && !errors.Is(why, ErrInterrupted) {
		l.cancelled = why
	}
	l.mailbox.start(l.resume)
	return l, nil
}

// post hands an event to the loop, or reports false when none will take it.
func (c *Conn) post(ev event) bool {
	l := c.running.Load()
	return l != nil && l.mailbox.post(ev)
}

// Done is closed when Run has returned and the Conn is closed for good.
func (c *Conn) Done() <-chan struct{} { return c.done }

// AwaitReady waits until the Conn is ready. It fails with the Reason when the
// Conn closes, and with the context's cause, naming what it waited for, when
// ctx ends first.
func (c *Conn) AwaitReady(ctx context.Context) error {
	for {
		status := c.Status()
		switch status.State {
		case Ready:
			return nil
		case Closing:
			return status.Reason
		}
		select {
		case <-status.changed:
		case <-ctx.Done():
			return fmt.Errorf("conn: not ready, %s (%w): %w", status.State, status.blame(), context.Cause(ctx))
		}
	}
}

// blame is the most telling reason for not being ready.
func (s *Status) blame() Reason {
	if s.LastFailure.Kind != "" {
		return s.LastFailure
	}
	return s.Reason
}

// Wake says that the peer is back: a backoff ends now.
func (c *Conn) Wake() { c.post(event{kind: woken}) }

// Stop ends every call at once and closes the link within Options.StopGrace.
// It does not wait; Done tells. It may be called from anywhere, and again.
// A Conn that is not running stops as soon as Run runs.
func (c *Conn) Stop() {
	c.stopping.Store(true)
	c.post(event{kind: stopAsked})
}

// Close takes no new calls, lets what is in flight finish, closes the link and
// waits until all of that is done. Handlers that still run may call out. What
// has not finished at ctx's deadline, or after Options.DrainGrace when there
// is none, is stopped, and Close returns an error that says how much, and that
// matches context.DeadlineExceeded; one hundredth of the time before a deadline
// is left for the link to close. When ctx ends otherwise Close stops everything
// at once and returns the context's cause.
//
// A Conn that is not running, or whose Run ends by a panic or an interruption
// meanwhile, gives ErrNotRunning, and stops as soon as Run runs.
func (c *Conn) Close(ctx context.Context) error {
	grace := c.options.DrainGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = time.Until(deadline) / 100 * 99 // the rest is for the link to close
	}
	l := c.running.Load() // the one that is asked, and waited for
	asked := l != nil && l.mailbox.post(event{kind: drainAsked, timeout: max(grace, 1)})
	if !asked {
		c.Stop()
	}
	if l == nil {
		return c.closed()
	}
	select {
	case <-c.done:
		if asked {
			return c.cutShort()
		}
	case <-l.ended:
		c.Stop() // it may have ended without having heard of it
	case <-ctx.Done():
		c.Stop()
		<-l.ended
		return context.Cause(ctx)
	}
	return c.closed()
}

// cutShort says what a drain has left undone. To whoever closes that is a
// deadline that has passed; to whoever called it is not.
func (c *Conn) cutShort() error {
	why := c.Status().Reason
	if why.Kind != Drained || why.Err == nil {
		return nil
	}
	return fmt.Errorf("conn: %w (%w)", why, context.DeadlineExceeded)
}

// closed tells a Conn that is closed for good from one that is not running.
func (c *Conn) closed() error {
	select {
	case <-c.done:
		return nil
	default:
		return ErrNotRunning
	}
}

// now is the time on the Conn's monotonic clock.
func (c *Conn) now() instant { return time.Since(c.born) }
