//bowline:pure

package conn

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An ending is how a request ends.
type ending struct {
	cause    Cause
	delivery Delivery
	err      error
}

// settle ends a request that was removed from pending. No request ends in another way while the
// core steps: after a reply, deadline, cancellation, loss, refusal or shutdown, the core calls
// settle (ADR-0003). After a panic or an interruption the core does not step any more:
// loop.settleCallers and loop.discard end what is left. A request that was not sent leaves no
// tombstone: no answer to it can be on its way.
func (c *core) settle(now instant, r request, e ending, reply *event) {
	fx := effect{kind: settle, id: r.id, call: r.call, cause: e.cause, delivery: e.delivery, err: e.err}
	if reply != nil {
		fx.payload = reply.payload
	} else if r.sent {
		c.tombstones.add(r.id, tombstone{e.cause, now + c.options.tombstoneLife()}, now+c.options.TombstoneSweep)
	}
	if !r.probe {
		c.emit(fx)
	}
}

// onCallMade accepts a call, or settles it in this step. It tracks the request before it sends it,
// because the link may report at once that it failed.
func (c *core) onCallMade(now instant, ev *event) {
	if cause, err := c.refusal(ev); err != nil {
		c.settle(now, request{id: ev.out.id, call: ev.out.call}, ending{cause, NotSent, err}, nil)
		return
	}
	r := request{id: ev.out.id, call: ev.out.call, silent: ev.silent, streaming: ev.streaming, via: ev.out.stream}
	if ev.timeout > 0 {
		r.deadline, r.limit = now+ev.timeout, now+max(ev.limit, ev.timeout)
	}
	if ev.restarts {
		r.timeout = ev.timeout
	}
	c.track(r)
	c.liveness.await(now)
	c.send(*ev.out)
}

// track adds a request of ours.
func (c *core) track(r request) {
	c.pending.add(r)
	c.lastID = max(c.lastID, r.id)
}

// onNoticeMade accepts a notification. Its caller waits until the link has taken the frame, so it
// is not in pending: it has no answer.
func (c *core) onNoticeMade(now instant, ev *event) {
	if cause, err := c.refusal(ev); err != nil {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, err}, nil)
		return
	}
	if ev.out.once && !c.outbound.empty() {
		c.refuseBusy(now, *ev.out)
		return
	}
	c.send(*ev.out)
}

// refusal returns why new work is not accepted now, or nil.
func (c *core) refusal(ev *event) (Cause, error) {
	state := c.state()
	switch {
	case state == Closing:
		return ShutDown, c.reason
	// What a handler still needs in order to answer is accepted, or the drain would fail the very
	// work that it waits for.
	case c.draining && !c.finishesWork(ev):
		return Refused, ErrDraining
	case state != Ready && !(state == Initializing && ev.handshake):
		return Refused, &StateError{State: state, Reason: c.reason}
	// The caller has encoded its message for another incarnation, which may speak another
	// revision.
	case ev.epoch != c.epoch:
		return Refused, ErrStale
	case c.pending.byID[ev.out.id] != nil:
		return Refused, errIDInUse
	default:
		return 0, nil
	}
}

// finishesWork reports whether new work belongs to a request that is still being
// served while the Conn drains. A peer that has ended its input answers no calls.
func (c *core) finishesWork(ev *event) bool {
	return ev.serving && (ev.kind == notificationMade || !c.ended)
}

// onReplied settles the request that was answered. An answer to a request that was not sent yet
// counts as unknown. Every answer is counted, and delivered at most once: never to a call that
// did not make the request, and never to one that has ended.
func (c *core) onReplied(now instant, ev *event) {
	e := ending{Answered, Sent, nil}
	if ev.fault != nil {
		e = ending{PeerError, Sent, ev.fault}
		if ev.fault.Code == jsonrpc.CodeOverloaded { // the peer has not executed the request
			e.delivery = NotSent
		}
	}
	switch _, pending := c.pending.byID[ev.id]; {
	case c.settleAnswered(now, ev, e):
	case !pending && ev.id > 0 && ev.id <= c.lastID:
		c.emit(effect{kind: late, id: ev.id, epoch: c.epoch, cause: c.tombstones.look(ev.id, now)})
	default:
		c.emit(effect{kind: unknown, id: ev.id, epoch: c.epoch})
	}
}

// settleAnswered ends the request that an event names, if that was sent. It reports
// whether it was.
func (c *core) settleAnswered(now instant, ev *event, e ending) bool {
	if waiting, ok := c.pending.byID[ev.id]; !ok || !waiting.sent {
		return false
	}
	r, _ := c.pending.take(ev.id)
	c.settle(now, r, e, ev)
	if r.stream != ev.stream || !ev.last {
		c.endStream(r.stream) // the stream existed only for this answer
	}
	return true
}

// onNotified gives a notification to the handler, and says for which of our requests its stream is.
func (c *core) onNotified(ev *event) {
	c.notified = true
	if on := c.streams.find(ev.stream); on != nil {
		ev.incoming.belongs = on.request
	}
	c.emit(effect{kind: notify, incoming: ev.incoming, epoch: ev.epoch})
}

// onProgressed gives progress to the caller of a pending request. Progress that comes too
// late is dropped.
func (c *core) onProgressed(now instant, ev *event) {
	if r := c.pending.progressed(ev.id, now); r != nil {
		c.emit(effect{kind: progress, id: ev.id, call: r.call, method: ev.method, payload: ev.payload})
	}
}

// onCallLeft ends the call of a caller that has given up. If the call has ended already, its
// outcome is on its way to the caller, and this changes nothing.
func (c *core) onCallLeft(now instant, ev *event) {
	cause := Cancelled
	if ev.timeout < 0 { // no timeout: only the deadline of the context limits the call
		cause = TimedOut
	}
	if ev.out == nil {
		c.abandon(now, ev.id, cause, ev.err)
	} else if c.outbound.withdraw(ev.out.call) {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, ev.err}, nil)
	}
}

// expireRequests ends the requests whose time is up, the earliest first.
func (c *core) expireRequests(now instant) {
	for passed(now, c.pending.deadline()) {
		c.abandon(now, c.pending.byDeadline[0].id, TimedOut, ErrTimedOut)
	}
}

// abandon ends a request that nobody waits for any more. If the request was sent, the
// peer is notified once.
func (c *core) abandon(now instant, id int64, cause Cause, err error) {
	r, ok := c.pending.take(id)
	if !ok {
		return // the request has ended already
	}
	c.settle(now, r, ending{cause, r.unanswered(), err}, nil)
	if !r.sent {
		c.outbound.drop(id)
		return
	}
	if !r.silent {
		c.sendCancel(jsonrpc.IntegerID(id), err)
	}
	c.endStream(r.stream)
}

// sendCancel tells the peer that this side ends a request.
func (c *core) sendCancel(id jsonrpc.ID, why error) {
	if cancel := c.dialect.Cancel(id, why); cancel.Method != "" {
		c.send(cancel.notification(id, new(transport.Route)))
	}
}

// abandonStreaming ends the requests that stay open, because a drain would wait for them
// forever.
func (c *core) abandonStreaming(now instant) {
	for _, id := range c.pending.ids() {
		if c.pending.byID[id].streaming {
			c.abandon(now, id, ShutDown, ErrDraining)
		}
	}
}

// settleAll ends every request, and every notification still queued, in one step. It leaves
// nothing behind that could end later in another way.
func (c *core) settleAll(now instant, cause Cause, why Reason, unsent []transport.Tag) {
	c.settlePending(now, cause, why, unsent)
	for _, out := range c.outbound.waiting() {
		if out.notification {
			c.settle(now, request{call: out.call}, ending{cause, NotSent, why}, nil)
		}
	}
	c.outbound = outbound{}
}

// settlePending ends every request in id order. The link has said which frames certainly did not
// leave; all others that it has taken may have been executed. A request also ends without the loss of
// its link: in abandonStream, if only its stream is lost, and in onFailed, if only its message failed.
func (c *core) settlePending(now instant, cause Cause, why Reason, unsent []transport.Tag) {
	for _, id := range c.pending.ids() {
		r, _ := c.pending.take(id)
		if !r.sent {
			c.outbound.drop(id)
		} else if slices.Contains(unsent, transport.Tag(id)) {
			r.sent = false
		}
		c.settle(now, r, ending{cause, r.unanswered(), why}, nil)
	}
}

// maxTombstones is how many tombstones are kept. When there are more, the oldest is
// removed.
const maxTombstones = 4096

// tombstones remembers requests that ended without their answer, so that a
// later answer counts as late (ADR-0005). Tombstones only classify answers: an
// answer without a tombstone is not delivered either.
type tombstones struct {
	byID    map[int64]tombstone
	order   []int64 // oldest first; all entries have the same lifetime
	sweepAt instant // when to sweep; 0 while there are no tombstones
}

// A tombstone says how a request ended, until it expires.
type tombstone struct {
	cause  Cause
	expiry instant
}

func (t *tombstones) len() int { return len(t.byID) }

// add remembers a request. The oldest one goes when there are too many: a late answer to that is
// then still counted as late, by its id, only without a cause.
func (t *tombstones) add(id int64, added tombstone, sweepAt instant) {
	if t.byID == nil {
		t.byID = make(map[int64]tombstone)
	}
	if len(t.order) == maxTombstones {
		t.removeOldest()
	}
	t.byID[id] = added
	t.order = append(t.order, id)
	if t.sweepAt == 0 {
		t.sweepAt = sweepAt
	}
}

// look returns how a request ended, or 0 if there is no tombstone for it.
func (t *tombstones) look(id int64, now instant) Cause {
	if found, ok := t.byID[id]; ok && now < found.expiry {
		return found.cause
	}
	return 0
}

// sweep removes what has expired, when it is due. Between sweeps an expired tombstone is ignored,
// so the time between them is only about memory.
func (t *tombstones) sweep(now instant, every time.Duration) {
	if !passed(now, t.sweepAt) {
		return
	}
	for len(t.order) > 0 && t.byID[t.order[0]].expiry <= now {
		t.removeOldest()
	}
	t.sweepAt = now + every
	if len(t.order) == 0 {
		*t = tombstones{}
	}
}

func (t *tombstones) removeOldest() {
	delete(t.byID, t.order[0])
	t.order = t.order[1:]
}

// tombstoneLife is the longest time after which a reply may still come: the
// timeouts of a request and of a handshake, the longest backoff, and a margin
// for jitter (ADR-0005).
func (t *Tuning) tombstoneLife() time.Duration {
	return t.RequestTimeout + t.InitTimeout + t.BackoffMax + 5*time.Second
}
