package conn

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// perform performs the core's effects, in order.
func (l *loop) perform(effects []effect) {
	for i := range effects {
		l.buffers.unperformed = effects[i:]
		l.performOne(&effects[i])
	}
	l.buffers.unperformed = nil
	clear(effects) // so they keep no payload in memory until the next step
}

// performOne performs one effect. It must not block, and must not step the core: what it learns
// from the link goes back to the core as an event of the same step (returned, following), or
// through the mailbox.
func (l *loop) performOne(fx *effect) {
	switch fx.kind {
	case transmit:
		l.transmit(fx)
	case offerMore:
		if len(l.buffers.returned) == 0 {
			l.buffers.returned = append(l.buffers.returned, event{kind: writable, epoch: fx.epoch, random: random()})
		}
	case grant, endStream, resumeStream, detach:
		l.tellLink(fx)
	case settle:
		fx.call.settle(outcome{ending{fx.cause, fx.delivery, fx.err}, fx.payload, l.buffers.at})
		l.countLost(fx.id, fx.cause)
	case progress:
		if fx.call.offer(fx.payload) {
			l.shed(fx.method)
		}
	case serve:
		l.serve(fx.incoming, fx.at)
	case unserved:
		l.tellUnserved(fx.incoming, fx.err)
	case cancelServing:
		fx.incoming.serving.cancel(fx.err)
	case notify:
		l.notify(fx.incoming)
	case awaitQuiet:
		if l.notifications.Load().AwaitQuiet() {
			l.buffers.follow(event{kind: quiet})
		}
	case askPlace:
		l.announce(fx)
		l.place = l.options.Gate.ask(&l.mailbox, fx.epoch)
	case leaveGate:
		l.leaveGate()
	case openLink:
		l.announce(fx)
		l.open(fx.epoch)
	case bind:
		l.bind(fx.link, fx.epoch)
	case handshake:
		l.handshake()
	case endTasks:
		l.cancelAll(fx.err)
	case closeLink:
		l.closeLink(fx.epoch, fx.unboundLink(), fx.at)
	case transitioned:
		l.transition(fx)
	case stuck:
		l.reportStuck(fx.incoming)
	case violation, late, unknown, missed, stallBegun, stallEnded:
		l.report(fx)
	case terminate:
		l.terminate()
	}
}

// tellLink performs an effect on a stream of the link.
func (l *loop) tellLink(fx *effect) {
	link := l.incarnation.link
	switch fx.kind {
	case grant:
		link.Grant(fx.stream, fx.frames)
	case endStream:
		link.End(fx.stream)
	case resumeStream:
		link.Resume(fx.stream)
	case detach:
		if d, ok := transport.As[transport.Detacher](link); ok {
			d.Detach()
		}
	}
}

// leaveGate gives up the loop's place at the gate, if it has one or waits for one.
func (l *loop) leaveGate() {
	l.options.Gate.leave(l.place)
	l.place = nil
}

// terminate ends the loop once its tasks have ended. It waits a bounded time for them, because a handler may
// never return.
func (l *loop) terminate() {
	l.finished = true
	if l.tasks.n > 0 {
		l.forEnd().taskTimer = time.AfterFunc(l.options.StopGrace, func() { l.mailbox.post(event{kind: overdue}) })
	}
}

// transmit offers a frame to the link. If the link has refused a frame in this
// step, it offers no further ones, so no frame overtakes another.
func (l *loop) transmit(fx *effect) {
	if len(l.buffers.returned) > 0 { // frames keep their order
		l.giveBack(fx, nil)
		return
	}
	out := &fx.out
	err := l.offer(out)
	if err == transport.ErrNoRoom && out.reply {
		err = l.offerShorter(out)
	}
	if err != nil {
		l.giveBack(fx, err)
		return
	}
	l.counters.bytesOut.Add(uint64(len(out.frame)))
	l.taken(out)
}

// offer gives a frame to the link, which takes it whole or not at all.
func (l *loop) offer(out *outboundFrame) error {
	return l.incarnation.link.Send(transport.Outbound{
		Stream: out.stream, Tag: transport.Tag(out.id), Last: out.last, Frame: out.frame, Route: out.routed(),
	})
}

// offerShorter offers what takes the place of a reply that finds no room with the peer. It does so at once:
// a reply that waits would keep its memory.
func (l *loop) offerShorter(out *outboundFrame) error {
	err := transport.ErrNoRoom
	for err == transport.ErrNoRoom && out.shorten() {
		err = l.offer(out)
	}
	return err
}

// giveBack returns a frame to the core that the link did not take, or, without an error, was
// not offered. It is not part of transmit, because its events would make the stack of every
// waiting caller twice as large.
func (l *loop) giveBack(fx *effect, err error) {
	ev := event{kind: busy, epoch: fx.epoch, out: returned(fx.out), random: random()}
	switch {
	case err == nil:
	case errors.Is(err, transport.ErrBusy):
		tell(l, l.options.Hooks.BusyRetry, telemetry.BusyRetry{Conn: l.own.name, Epoch: fx.epoch, ID: fx.out.id, Attempts: int(fx.out.attempts) + 1})
		ev.tried, ev.moved, l.moved = true, l.moved, false
	default:
		ev.kind, ev.err, ev.unsent = failed, err, true
	}
	l.buffers.returned = append(l.buffers.returned, ev)
}

// returned copies a frame that the link did not take, since the effect is used again.
func returned(out outboundFrame) *outboundFrame { return &out }

// taken frees the caller's send slot and its frame, and settles the caller of a
// notification.
func (l *loop) taken(out *outboundFrame) {
	l.moved = true
	switch {
	case out.notification:
		out.call.settle(outcome{ending: ending{cause: Answered, delivery: Sent}})
	case out.call != nil:
		out.call.releaseSlot()
		out.call.out.frame = nil // the answer may take long, and the frame is not needed until then
	}
}

// announce publishes the number of a new incarnation, and whether it waits.
func (l *loop) announce(fx *effect) {
	status := l.status.read()
	status.Epoch, status.Reason = fx.epoch, fx.reason
	l.status.replace(status)
}

// transition publishes a new state. The core has changed its own already, and settles callers only
// after this effect, so whoever learns of a loss finds the new state.
func (l *loop) transition(fx *effect) {
	var next time.Time
	if fx.to == Backoff {
		next = l.born.Add(fx.at)
	}
	l.move(fx.to, fx.reason, fx.epoch, next)
}

// describe adds what is known about the connection that has ended.
func (l *loop) describe(e *telemetry.Transition) {
	if versioned, ok := l.core.dialect.(Versioned); ok {
		e.Version = versioned.Version()
	}
	l.reportPanic("Transport.Traits", guard(func() error { e.Endpoint = transport.TraitsOf(l.transport).Endpoint; return nil }))
	if l.incarnation != nil {
		l.reportPanic("Link.LinkTraits", guard(func() error { e.HTTP = l.incarnation.Network().HTTP; return nil }))
	}
}

// move publishes a transition, and tells the hooks of it.
func (l *loop) move(to State, why Reason, epoch uint64, next time.Time) {
	before := l.status.read()
	status := Status{
		State: to, Reason: why, Since: time.Now(), Epoch: epoch, NextAttempt: next,
		LastFailure: before.LastFailure, lost: before.lost,
	}
	goesOn := to == Backoff || to == Starting
	if goesOn && before.lost != epoch {
		status.LastFailure, status.lost = why, epoch
	}
	l.status.replace(status)
	if hook := l.options.Hooks.Transition; hook != nil && to != before.State {
		e := telemetry.Transition{
			Conn: l.own.name, Epoch: epoch, From: string(before.State), To: string(to),
			Kind: string(why.Kind), Reason: why, At: status.Since, Lasted: status.Since.Sub(before.Since), NextAttempt: next,
			Dropped: l.counters.droppedEvents.Load(),
		}
		if before.State == Ready {
			l.describe(&e)
		}
		tell(l, hook, e)
	}
	if to == Backoff {
		l.logFailure(before.State, why, next)
	}
	if to == Closing {
		l.background.Load().End(why)
	}
	switch {
	case before.State == Ready && goesOn:
		l.gap = &gap{lost: epoch, why: why, since: status.Since}
		l.counters.outage.begin(status.Since.Sub(l.born))
	case to == Ready && l.gap != nil:
		l.counters.outage.end(status.Since.Sub(l.born))
		l.endGap(epoch, status.Since)
	case to == Closing:
		l.counters.outage.end(status.Since.Sub(l.born))
	}
}
