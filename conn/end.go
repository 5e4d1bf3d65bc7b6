package conn

import (
	"errors"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// endOrResume continues after a lent turn that still has the loop: it ends the loop here if
// this goroutine may do that and nothing is left to wait for. Otherwise the loop's own
// goroutine continues.
func (l *loop) endOrResume(held actor.Held, mayEnd bool) {
	if mayEnd && !held.Beside() && l.endsAtOnce() {
		l.run(l.mailbox.adopt(held))
		return
	}
	l.mailbox.resume(held)
}

// endsAtOnce reports whether the loop is about to end and has nothing left to wait for.
func (l *loop) endsAtOnce() bool {
	return l.finished && l.tasks.n == 0 && l.atEnd().panicked == nil && l.interruption() == nil && l.hooks.Load() == nil &&
		l.notifications.Load().Idle() && !l.background.Load().Ending()
}

// A loopEnd contains what a loop remembers for its end. Most loops have none until then.
type loopEnd struct {
	cancelled    error       // set: the context had ended before the loop began
	interruption error       // set: the loop ends without closing the Conn for good
	panicked     *PanicError // set: the same, after a panic on a lent goroutine
	closeErr     error       // the error of the link that was closed last
	taskTimer    *time.Timer // bounds how long a finished loop waits for tasks
}

// forEnd returns what the loop remembers for its end, to be changed.
func (l *loop) forEnd() *loopEnd {
	if l.lastly == nil {
		l.lastly = new(loopEnd)
	}
	return l.lastly
}

// atEnd returns what the loop remembers for its end, to be read.
func (l *loop) atEnd() loopEnd {
	if l.lastly == nil {
		return loopEnd{}
	}
	return *l.lastly
}

// interruption returns why the loop ends without closing the Conn for good, or nil.
func (l *loop) interruption() error {
	if l.lastly == nil { // as after almost every step
		return nil
	}
	return l.lastly.interruption
}

// linkClosed remembers whether closing the link has failed.
func (l *loop) linkClosed(err error) {
	if err != nil || l.lastly != nil {
		l.forEnd().closeErr = err
	}
}

// leave ends the loop. It removes the loop from everything that refers to it.
func (l *loop) leave() {
	if l.unwatch != nil {
		l.unwatch()
	}
	l.flush().flush(0)
	l.leaveGate()
	l.unsetProbe()
	l.options.Wheel.parking.Remove(l, l.parkSlot)
	stop(l.timer)
	stop(l.atEnd().taskTimer)
	switch {
	case l.buffers == nil:
	case l.finished && l.tasks.n == 0:
		l.giveUpBuffers()
	default: // something may still refer to the buffers
		l.options.Wheel.workers.parked()
	}
	l.counters.clear()
	l.conn.left()
	l.ended.Fire()
}

// close ends a Conn whose core has finished, and returns what Run returns.
func (l *loop) close() error {
	l.unpark()
	l.detachJob()
	l.flush().flush(0)
	remaining := l.mailbox.close()
	for l.buffers.batch = remaining; len(l.buffers.batch) > 0; {
		ev := &l.buffers.batch[0]
		l.buffers.batch = l.buffers.batch[1:]
		if ev.kind == linkOpened {
			closeUnwanted(ev.link)
			continue
		}
		l.step(ev) // the core is closing, so it settles the callers
	}
	l.mailbox.keep(remaining)
	stuck := l.stuck()
	l.done.Fire()
	var err error
	switch reason := l.core.reason; reason.Kind {
	case Stopped, Drained, PeerEnded:
	default:
		err = reason
	}
	if stuck == nil && l.atEnd().closeErr == nil {
		return err
	}
	return errors.Join(err, stuck, l.atEnd().closeErr)
}

// stuck waits a while for notifications, background functions and hooks, and
// returns a *StuckError if any code is still running.
func (l *loop) stuck() error {
	names, grace := l.tasks.names(), l.options.StopGrace
	for running := range l.tasks.all {
		if running.serves != nil {
			l.reportStuck(running.serves)
		}
	}
	shed, stuck := l.notifications.Load().Settle(grace)
	for _, gone := range shed {
		l.shed(gone.Method)
	}
	if stuck != "" {
		names = append(names, "notification "+stuck)
	}
	names = append(names, l.background.Load().Await(grace)...)
	if hooks := l.hooks.Load(); hooks != nil && !hooks.Settle(grace) {
		names = append(names, "a telemetry hook")
	}
	if len(names) == 0 {
		return nil
	}
	return &StuckError{Tasks: names}
}

// cancel stops or interrupts the loop, depending on the cause.
func (l *loop) cancel(cause error) {
	end := event{kind: stopAsked, err: cause}
	if errors.Is(cause, ErrInterrupted) {
		end.kind = interrupted
	}
	l.mailbox.post(end)
}

// afterPanic ends the loop after a panic on the goroutine that had it.
func (l *loop) afterPanic(panicked *PanicError) error {
	l.reportPanic("Run", panicked)
	return l.breakOff(Reason{LinkBroken, panicked})
}

// isLast reports whether the Conn closes for good with this loop, however the loop
// ends.
func (l *loop) isLast() bool {
	return l.role == acceptor || l.stopping.Load() || l.core.state() == Closing
}

// breakOff ends the loop without the core, after a panic or an interruption: it
// settles every caller, ends everything that the loop has begun, and closes the
// link. An initiator can be started again, unless it was stopping.
func (l *loop) breakOff(why Reason) error {
	l.unpark()
	l.detachJob()
	l.flush().flush(0)
	to, grace := Starting, l.options.StopGrace
	last := l.isLast()
	if last {
		to = Closing
	}
	l.epoch = l.core.epoch
	l.leaveGate()
	l.move(to, why, l.epoch, time.Time{})
	l.cancelAll(why) // before the callers, as in core.endIncarnation
	l.settleCallers(why)
	for i := range l.buffers.batch { // no step handles these events any more, but the tasks that sent them have ended
		l.endTask(&l.buffers.batch[i])
	}
	l.linkClosed(nil)
	if l.incarnation != nil {
		l.closeLink(l.epoch, nil, grace)
		l.flush().flush(0)
	}
	l.awaitTasks(why, 2*grace) // one grace for the link and one for handlers
	l.discard(why, l.mailbox.close())
	err := errors.Join(why.Err, l.atEnd().closeErr, l.stuck())
	if last {
		l.done.Fire()
	}
	return err
}

// settleCallers settles every call that the loop knows of. The delivery is Unknown
// unless the request was certainly not sent.
func (l *loop) settleCallers(why error) {
	done := make(map[*call]bool) // a settled call may already be reused for another request
	end := func(id int64, c *call, o outcome) {
		if c != nil && !done[c] && !c.settled {
			done[c] = true
			c.settle(o)
			l.countLost(id, o.cause)
		}
	}
	lost := func(d Delivery) outcome { return outcome{ending: ending{LinkLost, d, why}} }
	effects := l.buffers.unperformed
	if l.buffers.current != nil { // the core made these effects before it panicked
		effects = l.core.out
	}
	for _, fx := range effects {
		if fx.kind == settle {
			end(fx.id, fx.call, outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload, 0})
		} else if fx.out.notification {
			end(0, fx.out.call, lost(Unknown)) // the link may have accepted the frame before it panicked
		}
		l.closeUnbound(fx.unboundLink())
	}
	for _, r := range l.core.pending.byID {
		end(r.id, r.call, lost(r.unanswered()))
	}
	for _, out := range l.core.outbound.waiting() {
		end(out.id, out.call, lost(NotSent))
	}
	events := slices.Clone(l.buffers.returned)
	if l.buffers.current != nil {
		events = append(events, *l.buffers.current)
	}
	events = append(events, l.buffers.batch...)
	l.endRequests(why, effects, events)
	for _, ev := range events {
		if ev.out != nil {
			end(ev.out.id, ev.out.call, lost(NotSent))
		}
		l.closeUnbound(ev.unboundLink())
	}
}

// endRequests tells the Auditor, as tellUnserved does, of the requests that no step of the core will end, because the
// loop breaks off: those whose handlers were not started.
func (l *loop) endRequests(why error, effects []effect, events []event) {
	for i := range effects {
		if fx := &effects[i]; fx.kind == unserved {
			l.tellUnserved(fx.incoming, fx.err)
		}
	}
	for in := range l.core.incoming.all() {
		if in.serving.cancel == nil {
			l.tellUnserved(in, why)
		}
	}
	for i := range events {
		l.endRequest(why, &events[i])
	}
}

// endRequest tells the Auditor of the request that an event brings, if it brings one.
func (l *loop) endRequest(why error, ev *event) {
	if ev.kind == requested {
		l.tellUnserved(ev.incoming, why)
	}
}

// awaitTasks waits for the tasks, for at most the grace. It discards whatever else
// is posted meanwhile.
func (l *loop) awaitTasks(why error, grace time.Duration) {
	l.overdue = false
	timer := time.AfterFunc(grace, func() { l.mailbox.post(event{kind: overdue}) })
	defer timer.Stop()
	for held := l.mailbox.last(); l.tasks.n > 0 && !l.overdue; {
		events, woken := l.mailbox.takeOrWait(held, nil, true)
		if len(events) == 0 {
			held = <-woken
		}
		l.discard(why, events)
	}
}

// discard handles events that the core will not see: it settles their callers,
// closes their links and removes their tasks.
func (l *loop) discard(why error, events []event) {
	for i := range events {
		ev := &events[i]
		l.endTask(ev)
		l.endRequest(why, ev)
		switch ev.kind {
		case overdue:
			l.overdue = true
		case linkGone:
			l.linkClosed(ev.err)
		}
		if ev.out != nil && ev.out.call != nil && !ev.out.call.settled {
			ev.out.call.settle(outcome{ending: ending{LinkLost, NotSent, why}})
		}
		l.closeUnbound(ev.unboundLink())
	}
}

// closeUnbound closes a link that was never attached.
func (l *loop) closeUnbound(link transport.Link) {
	if link != nil && (l.incarnation == nil || l.incarnation.link != link) {
		closeUnwanted(link)
	}
}

// closeUnwanted closes a link that nobody waits for.
func closeUnwanted(link transport.Link) {
	_ = guard(func() error { return link.Close(0) })
}
