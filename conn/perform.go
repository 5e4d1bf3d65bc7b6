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
	case stallBegun:
		l.conn.counters.stalls.Add(1)
	case stallEnded, missed: // only told
	case settle:
		fx.call.settle(outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload})
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
	case openLink:
		l.enter(fx.epoch)
		l.open(fx.epoch)
	case bind:
		l.bind(fx.link, fx.epoch)
	case handshake:
		l.handshake(fx.epoch)
	case endTasks:
		if l.inc != nil {
			l.inc.cancel(fx.err)
		}
	case closeLink:
		l.closeLink(fx.epoch, fx.link, fx.grace)
	case transitioned:
		l.transition(fx)
	case violation, late, unknown:
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
	err := l.inc.link.Send(transport.Outbound{Stream: out.stream, Tag: transport.Tag(out.id), Last: out.last, Frame: out.frame})
	switch {
	case err == nil:
		l.taken(out)
	case errors.Is(err, transport.ErrBusy):
		l.returned = append(l.returned, event{kind: busy, epoch: fx.epoch, out: out, tried: true, moved: l.moved, random: random()})
		l.moved = false
	default:
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

// enter makes the number of a new incarnation visible.
func (l *loop) enter(epoch uint64) {
	status := l.conn.Status()
	status.Epoch = epoch
	l.conn.publish(status)
}

func (l *loop) transition(fx *effect) {
	c := l.conn
	now := time.Now()
	status := Status{State: fx.to, Reason: fx.reason, Since: now, Epoch: fx.epoch, LastFailure: c.Status().LastFailure}
	if fx.to == Backoff {
		status.NextAttempt = c.born.Add(fx.at)
		status.LastFailure = fx.reason
	}
	c.publish(status)
	told := telemetry.Transition{
		Conn: c.options.Name, Epoch: fx.epoch, From: string(fx.from), To: string(fx.to),
		Kind: string(fx.reason.Kind), Reason: fx.reason, At: now, NextAttempt: status.NextAttempt,
		Dropped: c.counters.untold.Load(),
	}
	l.tell(func() { c.options.Hooks.Transition(told) })
}

// report counts what a peer did wrong, and tells the hooks.
func (l *loop) report(fx *effect) {
	c, hooks := l.conn, &l.conn.options.Hooks
	reply := telemetry.Reply{Conn: c.options.Name, Epoch: fx.epoch, ID: fx.id}
	switch fx.kind {
	case late:
		c.counters.late.Add(1)
		l.tell(func() { hooks.LateReply(reply) })
	case unknown:
		c.counters.unknown.Add(1)
		l.tell(func() { hooks.UnknownReply(reply) })
	default:
		c.counters.malformed.Add(1)
		v := telemetry.Violation{Conn: c.options.Name, Epoch: fx.epoch, Err: fx.err}
		l.tell(func() { hooks.Violation(v) })
	}
}

// tell runs a hook off the loop. A hook that panics loses its event only.
func (l *loop) tell(hook func()) {
	c := l.conn
	told := l.events.submit(func() {
		if guard(func() error { hook(); return nil }) != nil {
			c.counters.untold.Add(1)
		}
	})
	if !told {
		c.counters.untold.Add(1)
	}
}
