package conn

import (
	"context"
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

	born       time.Time
	lastID     atomic.Int64
	slots      chan struct{}
	calls      sync.Pool // of *call
	mailbox    *mailbox
	notices    *notices
	status     atomic.Pointer[Status]
	counters   counters
	companions atomic.Pointer[companions]    // nil before the first
	present    atomic.Pointer[chan struct{}] // closed when the present Run returns; nil outside
	stopping   atomic.Bool
	done       chan struct{} // closed when Run has ended in closing
	epoch      uint64        // where the next Run continues
	gap        *gap          // the loop's: since it was ready; nil while it is, and before it has been
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
		mailbox: new(mailbox),
		done:    make(chan struct{}),
	}
	c.notices = &notices{
		handle: c.handle, eased: func() { c.mailbox.post(event{kind: eased}) },
		bound: o.MaxNotices, boundSize: o.MaxHeld,
	}
	c.status.Store(&Status{State: initial, Since: c.born, changed: make(chan struct{})})
	return c
}

// Name is Options.Name.
func (c *Conn) Name() string { return c.options.Name }

// Owner is Options.Owner.
func (c *Conn) Owner() any { return c.options.Owner }

// Run has the Conn live. It waits for its end, while another goroutine does the
// work, one that exists while there is some and for 100 ms after. Run returns
// when the Conn has closed: nil after Stop, Close, the end of ctx, which means
// Stop, or a peer that ended in good order; otherwise the Reason it closed for.
// A *StuckError is joined when code that was handed in is still running, and
// what the link said when it could not close cleanly.
//
// After a panic, or runtime.Goexit, of its goroutine, which calls Send and Grant
// of the link, Run returns a *PanicError, every call having ended as LinkLost,
// with an unknown delivery unless it surely never left; an initiator may be run
// again, and continues its ids and epochs. Other code that a Conn is given costs
// only what it was for.
//
// A context that ends with a cause that wraps ErrInterrupted has Run do the same
// without a panic: the link is closed within Options.StopGrace, what ran for it
// ends, the state is Starting for the Reason Interrupted, and Run returns that
// cause. So the handle survives while whoever runs it runs it anew. An acceptor
// stops instead, and so does a Conn that was to stop or close anyway.
func (c *Conn) Run(ctx context.Context) error {
	entered, ended := make(chan func(), 1), make(chan error, 1)
	go c.run(ctx, entered, ended)
	leave, ok := <-entered
	if !ok {
		return <-ended
	}
	defer leave() // not before: what this goroutine posts is for that loop
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		c.endWith(ctx)
		return <-ended
	}
}

// Start is Run without a goroutine while there is nothing to do: an event that
// comes to an idle Conn gets one, which serves requests as well, until the Conn
// is idle again. It returns once the first is idle, with the link bound, and
// fails like Run with ErrRunning and ErrNotRunning. What Run would return is
// given to over, once, on the last of those goroutines; Close and Done may tell
// of the end before. All that is said of Run elsewhere holds for Start.
func (c *Conn) Start(ctx context.Context, over func(error)) error {
	var l *loop
	l, leave, err := c.enter(ctx, func() { go l.runWhileBusy() }, func() { l.runWhileBusy() })
	if err != nil {
		return err
	}
	l.heed(ctx)
	unhook := c.endsWith(ctx)
	l.ends = func(err error) {
		unhook()
		leave()
		over(err)
	}
	closed, next, err := l.turns()
	if next != nil {
		go l.workAlone(next) // the caller's goroutine serves nobody
	}
	if closed {
		l.ends(err)
	}
	return nil
}

// enter gives the Conn a loop, which is to leave when its turns are over.
func (c *Conn) enter(ctx context.Context, wake, turn func()) (l *loop, leave func(), err error) {
	over := make(chan struct{})
	if !c.present.CompareAndSwap(nil, &over) {
		return nil, nil, ErrRunning
	}
	if c.State() == Closing {
		c.present.Store(nil)
		return nil, nil, ErrNotRunning
	}
	l = newLoop(c)
	detach := l.attach(ctx, wake, turn)
	return l, func() {
		detach()
		c.counters.depths.clear()
		c.present.Store(nil)
		close(over)
	}, nil
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
func (c *Conn) Wake() { c.mailbox.post(event{kind: woken}) }

// Stop ends every call at once and closes the link within Options.StopGrace.
// It does not wait; Done tells. It may be called from anywhere, and again.
// A Conn that is not running stops as soon as Run runs.
func (c *Conn) Stop() {
	c.stopping.Store(true)
	c.mailbox.post(event{kind: stopAsked})
}

// endWith does what the end of Run's context asks for.
func (c *Conn) endWith(ctx context.Context) { c.mailbox.post(endOf(ctx)) }

// endsWith has the end of a context do that, until it is unhooked. That is of no
// concern to a later loop.
func (c *Conn) endsWith(ctx context.Context) (unhook func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	posted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(posted)
		c.endWith(ctx)
	})
	return func() {
		if !stop() {
			<-posted
		}
	}
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
	run := c.present.Load() // first, so that the Run that is waited for is the one that is asked, or one before
	asked := c.mailbox.post(event{kind: drainAsked, timeout: max(grace, 1)})
	if !asked || run == nil {
		c.Stop()
	}
	if run == nil {
		return c.closed()
	}
	select {
	case <-c.done:
		if asked {
			return c.cutShort()
		}
	case <-*run:
		c.Stop() // this Run may have ended without having heard of it
	case <-ctx.Done():
		c.Stop()
		<-*run
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
