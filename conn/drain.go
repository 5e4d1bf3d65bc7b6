//bowline:pure

package conn

import (
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// end stops the Conn, or hurries a drain that is closing the link already.
func (c *core) end(now instant, why Reason) {
	switch {
	case c.state() != Closing:
		c.close(now, why, nil, c.options.StopGrace)
	case c.linked && c.grace > c.options.StopGrace: // a drain is closing the link, with a longer grace
		c.closeLink(now, c.options.StopGrace)
	}
}

// close ends the Conn for good. It is the only way of the core into Closing, and happens once: a second
// reason changes nothing, so Run returns the first. With no link there is nothing to wait for,
// and the loop may end at once.
func (c *core) close(now instant, why Reason, unsent []transport.Tag, grace time.Duration) {
	c.retryAt, c.initDue, c.drainDue, c.idleAt = 0, 0, 0, 0
	if !c.admit(closed, why) {
		return
	}
	cause := LinkLost
	if why.Kind == Stopped || why.Kind == Drained {
		cause = ShutDown
	}
	c.endIncarnation(now, cause, why, unsent, grace)
	if !c.linked {
		c.emit(effect{kind: terminate})
	}
}

// endIncarnation cancels and settles everything that ran on the link, and closes it. The handlers are
// cancelled before the callers are settled: a handler whose call ends with the link finds its own
// context ended, too, and so does whoever records how it has ended. A handler that notices the end and
// makes a call gets the error of the new state, which has been published before.
func (c *core) endIncarnation(now instant, cause Cause, why Reason, unsent []transport.Tag, grace time.Duration) {
	c.leaveGate()
	c.emit(effect{kind: endTasks, epoch: c.epoch, err: why})
	c.settleAll(now, cause, why, unsent)
	for _, request := range c.incoming.waiting {
		c.leaveUnserved(request.Incoming, why)
	}
	c.incoming.clear()
	c.streams.clear()
	c.liveness = liveness{}
	if c.linked {
		c.closeLink(now, grace)
	}
}

// closeLink begins to close the link. The core waits for that for at most the grace plus
// Options.StopGrace. A link that never closes must not keep the Conn from ending.
func (c *core) closeLink(now instant, grace time.Duration) {
	c.grace, c.closeDue = grace, now+grace+c.options.StopGrace
	c.emit(effect{kind: closeLink, epoch: c.epoch, at: grace})
}

// onLinkGone handles the event that the link has closed, and does what had to wait for that. It
// comes twice if the link closes after closeDue has passed; the second changes nothing.
func (c *core) onLinkGone(now instant) {
	if !c.linked {
		return
	}
	c.linked, c.closeDue = false, 0
	switch {
	case c.state() == Closing:
		c.emit(effect{kind: terminate})
	case c.retryWhy != "":
		c.retry(now, c.retryWhy)
	}
}

// onLinkEnded handles the event that the peer will send nothing more, so no answer can come.
// An acceptor finishes what it serves; an initiator waits for the loss.
func (c *core) onLinkEnded(now instant) {
	if c.role != acceptor || !c.attached() {
		return
	}
	c.ended = true
	// Our calls end now, because their answers would come on what the peer has ended. What this
	// side serves goes on: the peer still reads.
	c.settlePending(now, LinkLost, Reason{Kind: PeerEnded}, nil)
	c.drain(now, now+c.options.DrainGrace)
}

// onDrainAsked refuses new calls and notifications of this side. It closes the Conn when the work
// in flight has ended, or the time is up. A Conn that is not ready has no work but its handshake,
// so it closes at once.
func (c *core) onDrainAsked(now instant, ev *event) {
	switch c.state() {
	case Closing: // the grace does not change
	case Ready:
		c.drain(now, now+ev.timeout)
	default:
		c.end(now, Reason{Kind: Drained})
	}
}

// drain begins a drain, or brings its end forward: a second Close may have less time, and never
// gives the first more. Probes end, since a peer that is closing too must not count as lost;
// requests that stay open end, since they would never finish by themselves.
func (c *core) drain(now, due instant) {
	if !c.draining || due < c.drainDue {
		c.drainDue = due
	}
	if c.draining {
		return
	}
	c.draining = true
	c.refuseUntil = now + min((due-now)/2, longestRefusing)
	c.forgetProbe(now)
	c.liveness = liveness{}
	c.abandonStreaming(now)
	for _, request := range c.incoming.streaming { // the handlers may still answer
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrDraining})
	}
}

// A peer that calls all the time has sent further requests before it can know that the Conn
// drains. If the link closed then, their callers could not tell that they were not executed.
// So an acceptor without work refuses requests until none has come for refuseQuiet, but for at
// most longestRefusing, and half of the time for the drain.
const (
	refuseQuiet     = 200 * time.Millisecond
	longestRefusing = time.Second
)

// refusing returns until when an acceptor that drains refuses requests, if no more come. If that
// is past, it need not refuse any more.
func (c *core) refusing() instant { return min(c.quietAt(), c.refuseUntil) }

// quietAt returns when no request has come to an acceptor for refuseQuiet; 0: long ago.
func (c *core) quietAt() instant {
	if c.role != acceptor || c.askedAt == 0 || c.ended {
		return 0
	}
	return c.askedAt + refuseQuiet
}

// finishDrain closes a draining Conn that has no more work. A frame that was offered in this step
// may come back from a busy link, so the next step decides. The handler gets the notifications
// that came in before. It is asked at the end of each step, so no other code has to know that a
// drain is under way.
func (c *core) finishDrain(now instant, ev *event) {
	c.idleAt = 0
	switch {
	case !c.draining || c.state() != Ready:
	// A drain must not end while anything is under way in either direction, even one frame.
	case c.pending.len() > 0 || c.incoming.len() > 0 || !c.outbound.empty():
	case ev.kind == busy || ev.kind == failed: // the frames that were offered after this one come back, too
		c.idleAt = now
	case slices.ContainsFunc(c.out, func(fx effect) bool { return fx.kind == transmit }):
		c.idleAt = now
	case c.refusing() > now:
		c.idleAt = c.refusing()
	case c.notified:
		c.emit(effect{kind: awaitQuiet, epoch: c.epoch})
	default:
		c.close(now, Reason{Kind: Drained}, nil, c.options.DrainGrace)
	}
}

// unfinished returns the error of a drain whose time is up.
func (c *core) unfinished() error {
	unhandled := ""
	if c.notified {
		unhandled = "; the peer's notifications were not all handled"
	}
	return fmt.Errorf("cut short: %d calls of ours and %d of the peer's were unfinished, and %d messages unsent%s",
		c.pending.awaited(c.liveness.probe), c.incoming.len(), len(c.outbound.waiting()), unhandled)
}
