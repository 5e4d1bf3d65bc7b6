package conn

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// close is the regular end of a Conn.
func (l *loop) close() error {
	for l.batch = l.conn.mailbox.end(); len(l.batch) > 0; {
		ev := &l.batch[0]
		l.batch = l.batch[1:]
		if ev.kind == linkOpened {
			closeUnwanted(ev.link)
			continue
		}
		l.step(ev) // the core is closing: callers are told so
	}
	stuck := l.stuck()
	close(l.conn.done)
	return l.verdict(stuck)
}

// verdict is what Run returns.
func (l *loop) verdict(stuck error) error {
	var err error
	switch reason := l.core.reason; reason.Kind {
	case Stopped, Drained, PeerEnded:
	default:
		err = reason
	}
	if stuck == nil && l.remains == nil {
		return err
	}
	return errors.Join(err, stuck, l.remains)
}

// stuck gives notifications, companions and hooks the time to finish, and names
// what is running still.
func (l *loop) stuck() error {
	names := l.tasks.names()
	shed, settled := l.conn.notices.settle(l.conn.options.StopGrace)
	for _, gone := range shed {
		l.shed(gone.Method)
	}
	if !settled {
		names = append(names, "a notification handler")
	}
	names = append(names, l.conn.companions.Load().settle(l.conn.options.StopGrace)...)
	if l.events != nil && !l.events.settle(l.conn.options.StopGrace) {
		names = append(names, "a telemetry hook")
	}
	if len(names) == 0 {
		return nil
	}
	return &StuckError{Tasks: names}
}

// recoverPanic turns a panic of the loop into an error. What has ended its
// goroutine cannot be kept from that, so the end of the loop follows here.
func (l *loop) recoverPanic(err *error) {
	value, exited := recover(), *err == errExited
	if value == nil && !exited {
		return
	}
	if exited = value == nil; exited {
		value = errExited
	}
	panicked := &PanicError{Value: value, Stack: debug.Stack()}
	l.reportPanic("Run", panicked)
	if *err = l.breakOff(Reason{LinkBroken, panicked}); exited {
		l.ends(*err)
	}
}

// endOf is what the end of Run's context asks for.
func endOf(ctx context.Context) event {
	end := event{kind: stopAsked, err: context.Cause(ctx)}
	if errors.Is(end.err, ErrInterrupted) {
		end.kind = interrupted
	}
	return end
}

// heed has a loop end whose context had ended before there was anybody to be told.
func (l *loop) heed(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	if end := endOf(ctx); end.kind == stopAsked {
		l.late = end.err
	} else {
		l.conn.mailbox.post(end)
	}
}

// isLast reports whether the Conn ends with this loop, whatever ends that.
func (l *loop) isLast() bool {
	return l.conn.role == acceptor || l.conn.stopping.Load() || l.core.state() == Closing
}

// breakOff ends the loop without the core: every caller is told, and everything
// the loop had started is ended. Another Run of an initiator continues the ids
// and epochs, unless it was to stop anyway.
func (l *loop) breakOff(why Reason) error {
	c, to, over := l.conn, Starting, l.isLast()
	if over {
		to = Closing
	}
	c.epoch = l.core.epoch
	c.options.Gate.leave(l)
	unread := c.mailbox.end()
	l.move(to, why, c.epoch, time.Time{})
	l.abandon(why, unread)
	err := errors.Join(why.Err, l.dismantle(why))
	if over {
		close(c.done)
	}
	return err
}

// dismantle ends the incarnation. A link that takes too long to close is left
// behind, and named.
func (l *loop) dismantle(why error) error {
	grace, closed := l.conn.options.StopGrace, make(chan error, 1)
	l.cancelAll(why)
	if l.next != nil {
		go l.workAlone(l.next) // begun, so it ends by itself
		l.next = nil
	}
	if l.inc != nil && l.inc.link != nil {
		closing := l.tasks.add("closing the link", func(error) {})
		go l.carryOut(closing, func() error { return l.inc.link.Close(grace) }, func(err error) { closed <- err })
	}
	l.tasks.await(2 * grace) // one for the link, one for handlers
	select {
	case err := <-closed:
		return errors.Join(err, l.stuck())
	default:
		return l.stuck()
	}
}

// abandon ends every call this loop knows of: each may have been executed,
// unless it surely never left.
func (l *loop) abandon(why error, unread []event) {
	told := make(map[*call]bool)
	tell := func(id int64, c *call, o outcome) {
		if c != nil && !told[c] && !c.settled {
			told[c] = true
			c.settle(o)
			l.settled(id, o.cause)
		}
	}
	unsent := outcome{ending: ending{LinkLost, NotSent, why}}
	unknown := outcome{ending: ending{LinkLost, Unknown, why}}
	for _, fx := range l.left() {
		switch {
		case fx.kind == settle:
			tell(fx.id, fx.call, outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload})
		case fx.out.notice:
			tell(0, fx.out.call, unknown) // the link may have panicked after taking it
		}
		l.discard(fx.link)
	}
	for _, r := range l.core.pending.byID {
		tell(r.id, r.call, outcome{ending: ending{LinkLost, r.unanswered(), why}})
	}
	for _, out := range l.core.outbound.queue {
		tell(out.id, out.call, unsent)
	}
	events := slices.Clone(l.returned)
	if l.present != nil {
		events = append(events, *l.present)
	}
	events = append(events, l.batch...)
	for _, ev := range append(events, unread...) {
		tell(ev.out.id, ev.out.call, unsent)
		l.discard(ev.link)
	}
}

// left is what the core has said and the loop has not done: all of it when the
// core itself panicked.
func (l *loop) left() []effect {
	if l.present != nil {
		return l.core.out
	}
	return l.unperformed
}

// discard closes a link that was never attached.
func (l *loop) discard(link transport.Link) {
	if link != nil && (l.inc == nil || l.inc.link != link) {
		closeUnwanted(link)
	}
}

// closeUnwanted closes a link when nobody is left to be told how that went.
func closeUnwanted(link transport.Link) {
	_ = guard(func() error { return link.Close(0) })
}
