package conn

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// leave is the end of a loop: nothing refers to it any more.
func (l *loop) leave() {
	c := l.conn
	if l.unwatch != nil {
		l.unwatch()
	}
	c.options.Gate.leave(l)
	c.options.Wheel.unset(l)
	stop(l.timer)
	stop(l.patience)
	l.workers.dismiss()
	c.counters.depths.clear()
	c.running.Store(nil)
	close(l.ended)
}

// close is the regular end of a Conn.
func (l *loop) close() error {
	for l.batch = l.mailbox.close(); len(l.batch) > 0; {
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
	var err error
	switch reason := l.core.reason; reason.Kind {
	case Stopped, Drained, PeerEnded:
	default:
		err = reason
	}
	if stuck == nil && l.closeErr == nil {
		return err
	}
	return errors.Join(err, stuck, l.closeErr)
}

// stuck gives notifications, background functions and hooks the time to finish,
// and names what still runs.
func (l *loop) stuck() error {
	names, grace := l.tasks.names(), l.conn.options.StopGrace
	shed, settled := l.conn.notifications.settle(grace)
	for _, gone := range shed {
		l.shed(gone.Method)
	}
	if !settled {
		names = append(names, "a notification handler")
	}
	names = append(names, l.conn.background.Load().await(grace)...)
	if l.hooks != nil && !l.hooks.settle(grace) {
		names = append(names, "a telemetry hook")
	}
	if len(names) == 0 {
		return nil
	}
	return &StuckError{Tasks: names}
}

// endWith does what the end of Start's context asks for.
func (l *loop) endWith(ctx context.Context) {
	end := event{kind: stopAsked, err: context.Cause(ctx)}
	if errors.Is(end.err, ErrInterrupted) {
		end.kind = interrupted
	}
	l.mailbox.post(end)
}

// afterPanic ends the loop after a panic on its goroutine.
func (l *loop) afterPanic(value any) error {
	panicked := &PanicError{Value: value, Stack: debug.Stack()}
	l.reportPanic("Run", panicked)
	return l.breakOff(Reason{LinkBroken, panicked})
}

// isLast reports whether the Conn ends with this loop, whatever ends that.
func (l *loop) isLast() bool {
	return l.conn.role == acceptor || l.conn.stopping.Load() || l.core.state() == Closing
}

// breakOff ends the loop without the core: it settles every caller and ends
// everything that the loop has begun. Another Start of an initiator continues
// the ids and epochs, unless the Conn was to stop anyway.
func (l *loop) breakOff(why Reason) error {
	c, to, grace := l.conn, Starting, l.conn.options.StopGrace
	last := l.isLast()
	if last {
		to = Closing
	}
	c.epoch = l.core.epoch
	c.options.Gate.leave(l)
	l.move(to, why, c.epoch, time.Time{})
	l.settleCallers(why)
	l.cancelAll(why)
	l.closeErr = nil
	if l.incarnation != nil {
		l.closeLink(c.epoch, nil, grace)
	}
	l.awaitTasks(why, 2*grace) // one for the link, one for handlers
	l.discard(why, l.mailbox.close())
	err := errors.Join(why.Err, l.closeErr, l.stuck())
	if last {
		close(c.done)
	}
	return err
}

// settleCallers ends every call that this loop knows of: each may have been
// executed, unless it surely never left.
func (l *loop) settleCallers(why error) {
	told := make(map[*call]bool) // who was told may be in use for another call already
	end := func(id int64, c *call, o outcome) {
		if c != nil && !told[c] && !c.settled {
			told[c] = true
			c.settle(o)
			l.countLost(id, o.cause)
		}
	}
	lost := func(d Delivery) outcome { return outcome{ending: ending{LinkLost, d, why}} }
	effects := l.unperformed
	if l.current != nil { // the core panicked: it has said this much
		effects = l.core.out
	}
	for _, fx := range effects {
		if fx.kind == settle {
			end(fx.id, fx.call, outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload})
		} else if fx.out.notification {
			end(0, fx.out.call, lost(Unknown)) // the link may have panicked after taking it
		}
		l.closeUnbound(fx.link)
	}
	for _, r := range l.core.pending.byID {
		end(r.id, r.call, lost(r.unanswered()))
	}
	for _, out := range l.core.outbound.queue {
		end(out.id, out.call, lost(NotSent))
	}
	events := slices.Clone(l.returned)
	if l.current != nil {
		events = append(events, *l.current)
	}
	for _, ev := range append(events, l.batch...) {
		end(ev.out.id, ev.out.call, lost(NotSent))
		l.closeUnbound(ev.link)
	}
}

// awaitTasks waits for the tasks, for at most the grace. What is posted
// meanwhile comes too late.
func (l *loop) awaitTasks(why error, grace time.Duration) {
	l.overdue = false
	patience := time.AfterFunc(grace, func() { l.mailbox.post(event{kind: overdue}) })
	defer patience.Stop()
	woken := make(chan struct{}, 1)
	l.mailbox.start(func() { woken <- struct{}{} })
	for len(l.tasks) > 0 && !l.overdue {
		events := l.mailbox.take(nil)
		if len(events) == 0 {
			<-woken
		}
		l.discard(why, events)
	}
}

// discard goes through events that no core will see.
func (l *loop) discard(why error, events []event) {
	for i := range events {
		ev := &events[i]
		l.endTask(ev)
		switch ev.kind {
		case overdue:
			l.overdue = true
		case linkGone:
			l.closeErr = ev.err
		}
		if waiting := ev.out.call; waiting != nil && !waiting.settled {
			waiting.settle(outcome{ending: ending{LinkLost, NotSent, why}})
		}
		l.closeUnbound(ev.link)
	}
}

// closeUnbound closes a link that was never attached.
func (l *loop) closeUnbound(link transport.Link) {
	if link != nil && (l.incarnation == nil || l.incarnation.link != link) {
		closeUnwanted(link)
	}
}

// closeUnwanted closes a link when nobody is left to be told how that went.
func closeUnwanted(link transport.Link) {
	_ = guard(func() error { return link.Close(0) })
}
