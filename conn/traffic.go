//bowline:pure

package conn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An ending is how a request ends.
type ending struct {
	cause    Cause
	delivery Delivery
	err      error
}

// settle ends a request that was removed from pending. No request ends in another way:
// after a reply, deadline, cancellation, loss, refusal or shutdown, the core calls settle
// (ADR-0003).
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
	c.pending.add(r)
	c.liveness.await(now)
	c.send(*ev.out)
}

func (c *core) onNoticeMade(now instant, ev *event) {
	if cause, err := c.refusal(ev); err != nil {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, err}, nil)
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
	case c.draining && !c.finishesWork(ev):
		return Refused, ErrDraining
	case state != Ready && !(state == Initializing && ev.handshake):
		return Refused, &StateError{State: state, Reason: c.reason}
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

// onReplied settles the request that was answered. An answer to a request that
// was not sent yet counts as unknown.
func (c *core) onReplied(now instant, ev *event) {
	e := ending{Answered, Sent, nil}
	if ev.fault != nil {
		e = ending{PeerError, Sent, ev.fault}
	}
	switch _, pending := c.pending.byID[ev.id]; {
	case c.settleAnswered(now, ev, e):
	case !pending && ev.id > 0 && ev.id <= c.pending.lastID:
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
		c.endStream(r.stream) // it was there for the answer
	}
	return true
}

// onProgressed gives progress to the caller of a pending request. Progress that comes too
// late is dropped.
func (c *core) onProgressed(now instant, ev *event) {
	if r := c.pending.progressed(ev.id, now); r != nil {
		c.emit(effect{kind: progress, id: ev.id, call: r.call, method: ev.method, payload: ev.payload})
	}
}

func (c *core) onCallLeft(now instant, ev *event) {
	cause := Cancelled
	if ev.timeout < 0 { // its context's own deadline
		cause = TimedOut
	}
	if ev.out == nil {
		c.abandon(now, ev.id, cause, ev.err)
	} else if c.outbound.withdraw(ev.out.call) {
		c.settle(now, request{call: ev.out.call}, ending{cause, NotSent, ev.err}, nil)
	}
}

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
		return // it has ended already
	}
	c.settle(now, r, ending{cause, r.unanswered(), err}, nil)
	if !r.sent {
		c.outbound.drop(id)
		return
	}
	if !r.silent {
		if cancel := c.dialect.Cancel(id, err); cancel.Method != "" {
			c.send(cancel.notification(jsonrpc.IntegerID(id), new(transport.Route)))
		}
	}
	c.endStream(r.stream)
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

// settleAll ends every request, and every notification still queued, in one step.
func (c *core) settleAll(now instant, cause Cause, why Reason, unsent []transport.Tag) {
	c.settlePending(now, cause, why, unsent)
	for _, out := range c.outbound.waiting() {
		if out.notification {
			c.settle(now, request{call: out.call}, ending{cause, NotSent, why}, nil)
		}
	}
	c.outbound = outbound{}
}

// settlePending ends every request in id order.
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

// onStreamOpened gives a new stream its first credit. If the stream is for a
// request that has ended meanwhile, it ends the stream.
func (c *core) onStreamOpened(now instant, ev *event) {
	if ev.id != 0 {
		r, ok := c.pending.byID[ev.id]
		if !ok {
			c.emit(effect{kind: endStream, epoch: c.epoch, stream: ev.stream})
			return
		}
		r.stream = ev.stream
		c.pending.resumeOne(r, now) // what the peer asks on other streams is not for this request
	}
	c.streams.add(ev.stream, ev.id)
	c.emit(effect{kind: grant, epoch: c.epoch, stream: ev.stream, frames: c.options.Credit})
}

// onStreamLost handles the loss of a stream whose link continues. Only the requests of
// the stream end. If the stream can be resumed, they wait.
func (c *core) onStreamLost(now instant, ev *event) {
	s := c.streams.find(ev.stream)
	switch {
	case s == nil:
	case ev.resumable:
		c.streams.interrupt(s, now, c.options, ev)
	case s == &c.streams.main: // nothing belongs to it
	default:
		c.streams.drop(s.number)
		c.abandonStream(now, s, ev.reason)
	}
}

// abandonStream ends the requests of a stream that has ended: our request whose answer it
// would carry, or the peer's requests that came on it.
func (c *core) abandonStream(now instant, s *stream, why Reason) {
	if s.request != 0 {
		if r, ok := c.pending.take(s.request); ok {
			c.settle(now, r, ending{LinkLost, r.unanswered(), why}, nil)
		}
		return
	}
	for _, request := range s.requests {
		c.cancelIncoming(now, request)
	}
	for _, id := range c.pending.ids() { // what their handlers have asked on this stream
		if c.pending.byID[id].via == s.number {
			r, _ := c.pending.take(id)
			c.outbound.drop(id)
			c.settle(now, r, ending{LinkLost, r.unanswered(), why}, nil)
		}
	}
}

// endStream ends a stream from this side.
func (c *core) endStream(number transport.Stream) {
	s := c.streams.find(number)
	if s == nil || number == transport.Main {
		return
	}
	c.streams.drop(number)
	if s.request == 0 || !s.complete { // else the peer has ended it
		c.emit(effect{kind: endStream, epoch: c.epoch, stream: number})
	}
}

// finishStream ends a stream on which the peer sends nothing more, after all of the peer's
// requests on it have been answered.
func (c *core) finishStream(now instant, number transport.Stream) {
	s := c.streams.find(number)
	switch {
	case s == nil || !s.complete:
	case s.request != 0:
		c.streams.drop(number)
		c.abandonStream(now, s, Reason{StreamLost, transport.ErrPeerClosed})
	case len(s.requests) == 0:
		if last := c.outbound.lastReply(number); last != nil {
			last.last = true // so that the end of the stream does not overtake it
			c.streams.drop(number)
			return
		}
		c.endStream(number)
	}
}

// reply sends an answer to the peer, or adds it to those of its batch. The last one
// ends a stream that the peer has begun.
func (c *core) reply(out outboundFrame, b *batch) {
	if b != nil {
		c.gather(out, b)
		return
	}
	out.last = c.streams.isLastReply(out.stream)
	c.send(out)
}

// send offers a frame to the link, or queues it behind the frames that already wait.
func (c *core) send(out outboundFrame) {
	if !c.outbound.empty() {
		c.outbound.add(out)
		return
	}
	c.transmit(out)
}

func (c *core) transmit(out outboundFrame) {
	c.pending.markSent(out.id, true)
	c.emit(effect{kind: transmit, epoch: c.epoch, out: out})
}

// onBusy takes back a frame that the link had no room for. The shell gives back
// everything behind it too, in order, so no frame overtakes another.
func (c *core) onBusy(now instant, ev *event) {
	out := *ev.out
	c.pending.markSent(out.id, false)
	if c.outbound.refused(&out, now, ev.tried, ev.moved) {
		c.refuseBusy(now, out)
		return
	}
	c.outbound.retryLater(out, now, ev.random)
}

func (c *core) refuseBusy(now instant, out outboundFrame) {
	switch r, ok := c.pending.take(out.id); {
	case ok && r.probe:
		c.liveness.asked = false // the peer did not get it
	case ok:
		c.settle(now, r, ending{Refused, NotSent, transport.ErrBusy}, nil)
	case out.notification:
		c.settle(now, request{call: out.call}, ending{Refused, NotSent, transport.ErrBusy}, nil)
	}
}

// retrySends offers the queue to the link again, or gives up a link that accepts nothing.
func (c *core) retrySends(now instant, ev *event) {
	if ev.moved {
		c.outbound.stuckAt = 0
	}
	switch {
	case passed(now, c.outbound.stuckAt):
		c.lose(now, Reason{PeerNotReading, fmt.Errorf("nothing could be written for %v", stuckAfter)}, ev.random, 0, nil)
	case passed(now, c.outbound.retryAt):
		c.flush(now, ev)
	}
}

// onWritable offers the queue to a link that has room again.
func (c *core) onWritable(now instant, ev *event) {
	c.outbound.stuckAt = 0
	c.flush(now, ev)
}

// flush offers the first frames of the queue to the link. Frames that the link refuses
// come back through onBusy. If it accepts all, the shell reports that it is writable.
func (c *core) flush(now instant, ev *event) {
	for range c.outbound.widen() {
		c.transmit(c.outbound.take())
	}
	if c.outbound.empty() {
		return
	}
	c.outbound.retryAt = now + busyWait(ev.random)
	c.emit(effect{kind: offerMore, epoch: c.epoch})
}

// onFailed handles a message that the link could not send, although the link continues. If
// the message is a reply, for instance one that is too large, an error replaces it.
func (c *core) onFailed(now instant, ev *event) {
	r, ok := c.pending.take(ev.out.id)
	c.outbound.window = 0
	switch {
	case ok:
		c.streams.drop(r.stream)
		r.sent = !ev.unsent
		c.settle(now, r, ending{failureCause(ev.err, ev.unsent), r.unanswered(), ev.err}, nil)
	case ev.notice() != nil:
		c.settle(now, request{call: ev.notice()}, ending{failureCause(ev.err, true), NotSent, ev.err}, nil)
	case ev.out.answers != nil && !errors.Is(ev.err, transport.ErrNoRoute):
		fault := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the reply cannot be sent: %v", ev.err)}
		// What was offered behind it is about to come back, and must stay behind it.
		c.outbound.retryLater(outboundFrame{
			stream: ev.out.stream, reply: true, last: ev.out.last,
			frame: jsonrpc.AppendError(nil, ev.out.answers.key.id, fault), route: errorRoute(ev.out.answers.key.id, fault.Code),
		}, now, ev.random)
	}
}

// onRequested serves, queues or refuses a request from the peer.
func (c *core) onRequested(now instant, ev *event) {
	request := ev.incoming
	next, fault := c.incoming.judge(request, c.options, c.draining)
	if next == refuseIt {
		frame := jsonrpc.AppendError(nil, request.key.id, fault)
		c.reply(outboundFrame{stream: request.key.stream, frame: frame, route: errorRoute(request.key.id, fault.Code), reply: true}, request.batch)
		return
	}
	c.incoming.hold(request)
	if c.streams.asked(request) {
		c.pending.suspend(request.key.stream, now)
	}
	if next == serveIt {
		c.serve(request)
	} else {
		c.incoming.queue(request)
	}
}

func (c *core) serve(request *Incoming) {
	c.incoming.serve(request)
	c.large = c.large || len(c.incoming.serving) > maxFree
	c.emit(effect{kind: serve, incoming: request, epoch: c.epoch})
	if request.streaming && c.draining {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrDraining})
	}
}

// onCancelled handles a cancellation: the peer has abandoned one of its requests, or ends
// a streaming request of ours.
func (c *core) onCancelled(now instant, ev *event) {
	if request, ok := c.incoming.named(ev.incoming.key); ok {
		c.cancelIncoming(now, request)
		return
	}
	id, _ := ev.incoming.key.id.Int64()
	if ours, ok := c.pending.byID[id]; ok && ours.streaming && ours.sent {
		r, _ := c.pending.take(id)
		c.settle(now, r, ending{LinkLost, Unknown, Reason{PeerEnded, ErrPeerCancelled}}, nil)
		c.endStream(r.stream)
	} // else it has ended already: a cancellation may cross an answer
}

// cancelIncoming ends the context of a request that is being served, or drops one
// that waits. If the handler still answers, the answer is not sent.
func (c *core) cancelIncoming(now instant, request *Incoming) {
	c.answered(now, request)
	if c.incoming.cancel(request, now+c.options.CancelGrace) {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrPeerCancelled})
	}
	c.leaveBatch(request.batch, request.key.stream)
	c.finishStream(now, request.key.stream)
}

// answered notes that a request from the peer has been answered, or never will be.
func (c *core) answered(now instant, request *Incoming) {
	if c.streams.answered(request) {
		c.pending.resume(request.key.stream, now)
	}
}

// onHandled sends the answer of a handler that has returned, and serves the next
// requests that wait.
func (c *core) onHandled(now instant, ev *event) {
	answer, known := c.incoming.finish(ev.incoming)
	if !known {
		return // of an incarnation that is over
	}
	if answer {
		c.answered(now, ev.incoming)
		c.reply(outboundFrame{stream: ev.incoming.key.stream, frame: ev.payload, reply: true, answers: ev.incoming}, ev.incoming.batch)
	}
	c.serveNext()
}

// abandonStuck stops counting handlers that keep running long after their requests were
// cancelled.
func (c *core) abandonStuck(now instant) {
	for request := c.incoming.expire(now, c.options.MaxServing); request != nil; request = c.incoming.expire(now, c.options.MaxServing) {
		c.emit(effect{kind: stuck, epoch: c.epoch, incoming: request})
	}
	c.serveNext()
}

// serveNext serves waiting requests until no place is left.
func (c *core) serveNext() {
	for next := c.incoming.next(c.options.MaxServing); next != nil; next = c.incoming.next(c.options.MaxServing) {
		c.serve(next)
	}
}

// A malformedRun counts the malformed frames since the last valid one.
type malformedRun struct{ frames, bytes int }

// maxMalformedBytes is how many bytes of malformed frames in a row lose the link.
const maxMalformedBytes = 16 << 20

// onMalformed counts a frame that is not a valid message. After too many in a row it gives
// up the link: a child may print a banner or logs, but a peer that sends nothing else does
// not use JSON-RPC.
func (c *core) onMalformed(now instant, ev *event) {
	c.emit(effect{kind: violation, epoch: c.epoch, err: ev.err})
	run := &c.malformed
	run.frames++
	run.bytes += int(ev.size)
	if run.frames >= c.options.MaxMalformed || run.bytes >= maxMalformedBytes {
		c.lose(now, Reason{Malformed, fmt.Errorf("%d malformed frames (%d bytes) in a row, the last: %w", run.frames, run.bytes, ev.err)}, ev.random, 0, nil)
		return
	}
	switch {
	case c.settleAnswered(now, ev, ending{PeerError, Sent, ev.err}): // it gets no other answer
	case ev.out != nil:
		c.reply(*ev.out, ev.batch)
	}
}
