package conn

import (
	"context"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// A Control has the methods of a Conn that a program does not need, but what runs Conns for it
// does: clients, servers and supervisors. They may be called from any goroutine.
type Control struct{ conn *Conn }

// Control returns the Control of a Conn.
func (c *Conn) Control() Control { return Control{c} }

// Owner returns Options.Owner.
func (c Control) Owner() any { return c.conn.own.owner }

// Begin does what Start does, but its function onEnd must not block. The Conn may call
// onEnd on the goroutine that called Close; Close then returns after onEnd. An acceptor
// may also call onEnd on the goroutine that ends the link, if the link permits that (Work
// of transport.Loss).
func (c Control) Begin(ctx context.Context, onEnd func(error)) error {
	return c.conn.start(ctx, onEnd, true)
}

// LeaveOpening tells the next Start or Begin not to connect. Call Open to make the first
// attempt on your own goroutine: if you wait for the first link anyway, this saves
// goroutines. It has an effect only if the transport opens links without waiting
// (transport.Traits). If nobody calls Open, the attempt fails after
// Options.InitTimeout.
func (c Control) LeaveOpening() {
	_ = guard(func() error { c.conn.leaves.Store(transport.TraitsOf(c.conn.transport).OpensAtOnce); return nil })
}

// Open makes the first attempt to connect, if LeaveOpening was called before Start: it opens
// the link and runs the handshake on the calling goroutine. It returns when the attempt has
// ended, or continues on another goroutine. Stop ends the attempt. If the Conn has not started
// yet, Open returns, and the Conn connects by itself when it starts.
func (c Control) Open() {
	l := c.conn.running.Load()
	if l == nil {
		if c.conn.leaves.Swap(false) {
			return // the Conn has not started; when it does, it connects by itself
		}
		if l = c.conn.running.Load(); l == nil {
			return
		}
	}
	for j := l.opening.take(); j != nil; j = l.opening.take() {
		if held := l.bring(j, actor.Lend); held.OK() {
			l.turn(held, 0)
		}
	}
}

// Cancel does what the end of the context of Run, Start or Begin does while the Conn runs:
// it interrupts an initiator if the cause wraps ErrInterrupted, and otherwise, also if the
// cause is nil, it stops the Conn. A supervisor calls it, so that an idle Conn needs no
// context that can end. Cancel does not wait. If the Conn is not running it does nothing,
// and a later Run does not learn of it.
func (c Control) Cancel(cause error) {
	if l := c.conn.running.Load(); l != nil {
		l.cancel(cause)
	}
}

// Go runs f on a new goroutine. A lost link or an interrupted Run does not affect f.
// Its context ends, with the Reason as its cause, when the Conn closes for good. Run
// then waits for f for at most Options.StopGrace, and names it in a *StuckError if it
// is still running. A panic of f is reported to Hooks.Panic under the same name.
//
// Go returns false, without running f, if the Conn is closing or closed. If the Conn
// never runs, the context of f never ends.
func (c Control) Go(name string, f func(context.Context)) bool {
	return c.conn.inBackground().Add(name, func(ctx context.Context) {
		c.conn.reportPanic(name, guard(func() error { f(ctx); return nil }))
	})
}

// AwaitNotified waits until the handler has had all notifications that came before the call, but for those that were dropped, or until ctx
// ends. Behind a Call, these are those that came before its answer. A handler of notifications must not wait for it.
func (c Control) AwaitNotified(ctx context.Context) {
	if gone := c.conn.notifications.Load().Gone(); gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// ReportPanic reports a panic to Hooks.Panic and to the log, on the calling
// goroutine. Packages that are built on a Conn call it for panics in callbacks that
// the program gave to them. The Conn itself reports panics in the callbacks that it
// was given.
func (c Control) ReportPanic(where string, panicked *PanicError) { c.conn.reportPanic(where, panicked) }
