package conn

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// perform carries the core's effects out, in order.
func (l *loop) perform(effects []effect) {
	for i := range effects {
		l.unperformed = effects[i:]
		l.performOne(&effects[i])
	}
	l.unperformed = nil
	clear(effects) // so that no payload is held until the next step
}

func (l *loop) performOne(fx *effect) {
	switch fx.kind {
	case transmit:
		l.transmit(fx)
	case grant:
		l.inc.link.Grant(fx.stream, fx.frames)
	case endStream:
		l.inc.link.End(fx.stream)
	case resumeStream:
		l.inc.link.Resume(fx.stream)
	case settle:
		fx.call.settle(outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload})
		l.settled(fx.id, fx.cause)
	case progress:
		if fx.call.offer(fx.payload) {
			l.shed(fx.method)
		}
	case serve:
		l.serve(fx.incoming)
	case cancelServing:
		fx.incoming.task.cancel(fx.err)
	case notify:
		l.deliver(fx.incoming)
	case askPlace:
		l.enter(fx)
		l.conn.options.Gate.ask(l, fx.epoch)
	case leaveGate:
		l.conn.options.Gate.leave(l)
	case openLink:
		l.enter(fx)
		l.open(fx.epoch)
	case bind:
		l.bind(fx.link, fx.epoch)
	case handshake:
		l.handshake(fx.epoch)
	case endTasks:
		l.cancelAll(fx.err)
	case closeLink:
		l.closeLink(fx.epoch, fx.link, fx.grace)
	case transitioned:
		l.transition(fx)
	case violation, late, unknown, missed, stallBegun, stallEnded:
		l.report(fx)
	case terminate:
		l.finished = true
		l.patience = time.AfterFunc(l.conn.options.StopGrace, func() { l.conn.mailbox.post(event{kind: overdue}) })
	}
}

// transmit offers a frame to the link. Behind a frame that was refused nothing
// else is offered, so that nothing overtakes.
func (l *loop) transmit(fx *effect) {
	out := fx.out
	if len(l.returned) > 0 {
		l.returned = append(l.returned, event{kind: busy, epoch: fx.epoch, out: out, random: random()})
		return
	}
	err := askable(l.inc.link.Send(transport.Outbound{Stream: out.stream, Tag: transport.Tag(out.id), Last: out.last, Frame: out.frame, Route: out.routed()}))
	switch {
	case err == nil:
		l.taken(out)
	case errors.Is(err, transport.ErrBusy):
		tell(l, l.conn.options.Hooks.BusyRetry, telemetry.BusyRetry{Conn: l.conn.options.Name, Epoch: fx.epoch, ID: out.id, Attempts: out.attempts + 1})
		l.returned = append(l.returned, event{kind: busy, epoch: fx.epoch, out: out, tried: true, moved: l.moved, random: random()})
		l.moved = false
	default:
		l.reportPanic("Link", err)
		l.returned = append(l.returned, event{kind: failed, epoch: fx.epoch, out: out, err: err, unsent: true})
	}
}

// taken lets the next caller send, and tells who waited for no more than this.
func (l *loop) taken(out outboundFrame) {
	l.moved = true
	switch {
	case out.notice:
		out.call.settle(outcome{ending: ending{cause: Answered, delivery: Sent}})
	case out.call != nil:
		out.call.releaseSlot()
	}
}

// enter makes the number of a new incarnation visible, and whether it waits.
func (l *loop) enter(fx *effect) {
	status := l.conn.Status()
	status.Epoch, status.Reason = fx.epoch, fx.reason
	l.conn.publish(status)
}

func (l *loop) transition(fx *effect) {
	var next time.Time
	if fx.to == Backoff {
		next = l.conn.born.Add(fx.at)
	}
	l.move(fx.to, fx.reason, fx.epoch, next)
}

// move publishes a transition, and tells the hooks of it.
func (l *loop) move(to State, why Reason, epoch uint64, next time.Time) {
	c, before := l.conn, l.conn.Status()
	status := Status{
		State: to, Reason: why, Since: time.Now(), Epoch: epoch, NextAttempt: next,
		LastFailure: before.LastFailure, lost: before.lost,
	}
	goesOn := to == Backoff || to == Starting
	if goesOn && before.lost != epoch {
		status.LastFailure, status.lost = why, epoch
	}
	c.publish(status)
	told := telemetry.Transition{
		Conn: c.options.Name, Epoch: epoch, From: string(before.State), To: string(to),
		Kind: string(why.Kind), Reason: why, At: status.Since, NextAttempt: next,
		Dropped: c.counters.untold.Load(),
	}
	if to != before.State {
		tell(l, c.options.Hooks.Transition, told)
	}
	if to == Closing {
		c.companions.Load().end(why)
	}
	switch {
	case before.State == Ready && goesOn:
		l.beginGap(epoch, why, status.Since)
	case to == Ready && c.gap != nil:
		l.endGap(epoch, status.Since)
	}
}

// report counts what is not as it should be, and tells the hooks.
func (l *loop) report(fx *effect) {
	c, hooks := l.conn, &l.conn.options.Hooks
	reply := telemetry.Reply{Conn: c.options.Name, Epoch: fx.epoch, ID: fx.id, Cause: fx.cause.String()}
	stalled := telemetry.Stalled{Conn: c.options.Name, Epoch: fx.epoch, Why: fx.stall.String()}
	switch fx.kind {
	case late:
		c.counters.late.Add(1)
		tell(l, hooks.LateReply, reply)
	case unknown:
		c.counters.unknown.Add(1)
		tell(l, hooks.UnknownReply, reply)
	case missed:
		tell(l, hooks.Missed, telemetry.Missed{Conn: c.options.Name, Epoch: fx.epoch, InRow: fx.frames})
	case stallBegun:
		c.counters.stalls.Add(1)
		stalled.Since = time.Now()
		tell(l, hooks.Stalled, stalled)
	case stallEnded:
		stalled.Since, stalled.Over, stalled.Duration = time.Now().Add(-fx.at), true, fx.at
		tell(l, hooks.Stalled, stalled)
	default:
		c.counters.malformed.Add(1)
		tell(l, hooks.Violation, telemetry.Violation{Conn: c.options.Name, Epoch: fx.epoch, Err: fx.err})
	}
}

// received tells the hooks of a notification that is on its way to the handler.
func (l *loop) received(in *Incoming) {
	if hook := l.conn.options.Hooks.NotificationReceived; hook != nil {
		tell(l, hook, telemetry.NotificationReceived{Conn: l.conn.options.Name, Epoch: in.Epoch, Method: in.Method, Size: len(in.Params)})
	}
}

// tell runs a hook off the loop, if there is one.
func tell[E any](l *loop, hook func(E), e E) {
	if hook == nil {
		return
	}
	if l.events == nil {
		l.events = newSerial(maxHookEvents)
	}
	c := l.conn
	if !l.events.submit(func() { c.tell(func() { hook(e) }) }) {
		c.counters.untold.Add(1)
	}
}

// tell runs a hook. One that panics loses its event only.
func (c *Conn) tell(hook func()) {
	if guard(func() error { hook(); return nil }) != nil {
		c.counters.untold.Add(1)
	}
}
