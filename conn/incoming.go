//bowline:pure

package conn

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// incomingKey identifies a request from the peer. The peer's ids are unique only within a
// stream.
type incomingKey struct {
	stream transport.Stream
	id     jsonrpc.ID
}

// incoming holds the peer's requests that are being served or wait for that. A cancelled request
// is kept until its handler returns, but is not answered. After Options.CancelGrace it is stuck:
// it no longer counts, except for its bytes. A request is in exactly one of serving, cancelled
// and waiting. Its bytes count until its handler has returned, even if nobody wants the answer
// any more: so long it uses the memory.
type incoming struct {
	serving          map[incomingKey]*Incoming
	cancelled        []dueRequest              // cancelled requests whose handlers still run, oldest first
	stuck            int                       // how many of the first elements of cancelled are stuck
	exclusive        *Incoming                 // a request that is being served and that all others wait for
	streaming        []*Incoming               // requests that are being served, and stay open until either side ends them
	waiting          []dueRequest              // requests that wait to be served, oldest first
	waitingByKey     map[incomingKey]*Incoming // the same requests by key, because there may be thousands
	waitingStreaming int                       // how many of the waiting requests will stay open
	bytes            int                       // the bytes that all of them keep in memory
}

// A dueRequest was cancelled, and its handler has not returned, or it waits to be served.
type dueRequest struct {
	*Incoming
	due instant // when its handler counts as stuck, or when it has waited for too long; 0: never
}

// len returns how many requests count: those that wait, and those whose handlers run and
// are not stuck.
func (in *incoming) len() int { return in.running() + len(in.waiting) }

// running returns how many handlers run and are not stuck.
func (in *incoming) running() int { return len(in.serving) + len(in.cancelled) - in.stuck }

// park gives up the memory that is kept for later requests, if there are none now.
func (in *incoming) park() (given map[incomingKey]*Incoming) {
	if in.len() > 0 || in.stuck > 0 {
		return nil
	}
	given = in.serving
	*in = incoming{}
	return given
}

// clear forgets all requests. It keeps the memory of the map that every request is in.
func (in *incoming) clear() {
	serving := in.serving
	clear(serving)
	*in = incoming{serving: serving}
}

// fits reports whether there is room for the bytes of a request. There always is for a
// single one.
func (in *incoming) fits(request *Incoming, limit int) bool {
	return in.bytes == 0 || in.bytes+int(request.size) <= limit
}

// hold counts what a request holds.
func (in *incoming) hold(request *Incoming) { in.bytes += int(request.size) }

// release gives back the bytes of a request that has ended.
func (in *incoming) release(request *Incoming) { in.bytes -= int(request.size) }

// closed reports whether no further request can be served now.
func (in *incoming) closed(limit int) bool {
	return in.exclusive != nil || in.running()-len(in.streaming) >= limit
}

func (in *incoming) find(key incomingKey) (*Incoming, bool) {
	if request, ok := in.serving[key]; ok {
		return request, true
	}
	request, ok := in.waitingByKey[key]
	return request, ok
}

// named returns the request that a cancellation is for. A cancellation on Main may
// be for any stream; if several requests have its id, it is for the earliest.
func (in *incoming) named(key incomingKey) (*Incoming, bool) {
	if request, ok := in.find(key); ok || key.stream != transport.Main {
		return request, ok
	}
	var named *Incoming
	for request := range in.all() {
		if request.key.id == key.id && (named == nil || request.key.stream < named.key.stream) {
			named = request
		}
	}
	return named, named != nil
}

// all ranges over the requests that may still be answered, in no order.
func (in *incoming) all() iter.Seq[*Incoming] {
	return func(yield func(*Incoming) bool) {
		for _, request := range in.serving {
			if !yield(request) {
				return
			}
		}
		for _, request := range in.waiting {
			if !yield(request.Incoming) {
				return
			}
		}
	}
}

// A verdict says what happens to a new request from the peer.
type verdict uint8

const (
	refuseIt verdict = iota
	serveIt
	queueIt
)

// errShuttingDown answers a request that a draining Conn does not serve.
var errShuttingDown = &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded: shutting down"}

// errTooLate answers a request that has waited for longer than Options.Patience.
func errTooLate(patience time.Duration) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: fmt.Sprintf("overloaded: the request has waited for %v", patience)}
}

// judge decides whether a request is served now, waits, or is refused, and why. Held is how long
// the link has held it. The order of the cases is part of what a peer sees: an id in use is its
// own mistake and not overload, and a Conn that drains says so whatever room it has.
func (in *incoming) judge(request *Incoming, held time.Duration, o *Tuning, draining bool) (verdict, *jsonrpc.Error) {
	overloaded := func(format string, args ...any) (verdict, *jsonrpc.Error) {
		return refuseIt, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded: " + fmt.Sprintf(format, args...)}
	}
	_, known := in.find(request.key)
	switch {
	case known:
		return refuseIt, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "a request with this id is being served"}
	case draining:
		return refuseIt, errShuttingDown
	case o.Patience > 0 && held >= o.Patience:
		return refuseIt, errTooLate(o.Patience)
	case !in.fits(request, o.MaxHeld):
		return overloaded("requests of %d bytes are held", in.bytes)
	case request.streaming && len(in.streaming)+in.waitingStreaming >= o.MaxStreaming:
		return overloaded("%d requests stay open", o.MaxStreaming)
	case request.streaming && in.exclusive == nil, !in.closed(o.MaxServing):
		return serveIt, nil
	case len(in.waiting) < o.MaxWaiting:
		return queueIt, nil
	default:
		return overloaded("%d requests are being served and %d wait", o.MaxServing, o.MaxWaiting)
	}
}

// serve notes that the handler of a request runs.
func (in *incoming) serve(request *Incoming) {
	if in.serving == nil {
		in.serving = make(map[incomingKey]*Incoming)
	}
	in.serving[request.key] = request
	if request.exclusive {
		in.exclusive = request
	}
	if request.streaming {
		in.streaming = append(in.streaming, request)
	}
}

// queue notes that a request waits, at most until due. Those that the link has held come before others.
func (in *incoming) queue(request *Incoming, due instant) {
	if in.waitingByKey == nil {
		in.waitingByKey = make(map[incomingKey]*Incoming)
	}
	at := len(in.waiting)
	for ; at > 0 && in.waiting[at-1].due > due; at-- {
	}
	in.waiting, in.waitingByKey[request.key] = slices.Insert(in.waiting, at, dueRequest{request, due}), request
	if request.streaming {
		in.waitingStreaming++
	}
}

// cancel removes a request that is not to be answered any more. It reports whether its
// handler still runs. If the handler has not returned by due, it counts as stuck.
func (in *incoming) cancel(request *Incoming, due instant) (running bool) {
	if in.serving[request.key] != request {
		in.forget(request)
		return false
	}
	delete(in.serving, request.key)
	in.cancelled = append(in.cancelled, dueRequest{request, due})
	return true
}

// forget removes a request that waits.
func (in *incoming) forget(request *Incoming) {
	if at := indexOf(in.waiting, request); at >= 0 {
		in.waiting = slices.Delete(in.waiting, at, at+1)
		in.unqueue(request)
		in.release(request)
	}
}

// unqueue notes that a request no longer waits.
func (in *incoming) unqueue(request *Incoming) {
	delete(in.waitingByKey, request.key)
	if request.streaming {
		in.waitingStreaming--
	}
}

// finish notes that the handler of a request has returned. It reports whether its answer is
// wanted, and whether it was known at all. An answer that is not wanted must not be sent: the
// peer may have used the id again.
func (in *incoming) finish(request *Incoming) (answer, known bool) {
	if in.serving[request.key] == request {
		delete(in.serving, request.key)
		answer = true
	} else {
		at := indexOf(in.cancelled, request)
		if at < 0 {
			return false, false
		}
		in.cancelled = slices.Delete(in.cancelled, at, at+1)
		if at < in.stuck {
			in.stuck--
		}
	}
	in.release(request)
	in.vacate(request)
	return answer, true
}

// vacate frees the place of a request that stays open, or that others wait for.
func (in *incoming) vacate(request *Incoming) {
	if request.streaming {
		in.streaming = slices.DeleteFunc(in.streaming, func(other *Incoming) bool { return other == request })
	}
	if in.exclusive == request {
		in.exclusive = nil
	}
}

// stuckPerPlace times Options.MaxServing handlers can be stuck. Further ones count until
// they return.
const stuckPerPlace = 8

// deadline returns when the next handler is stuck, or the next request has waited for too long; 0: never.
func (in *incoming) deadline(limit int) instant {
	if len(in.waiting) == 0 {
		return in.stuckAt(limit)
	}
	return earliest(in.stuckAt(limit), in.waiting[0].due)
}

// stuckAt returns when the next handler is stuck; 0: never.
func (in *incoming) stuckAt(limit int) instant {
	if in.stuck == len(in.cancelled) || in.stuck >= stuckPerPlace*limit {
		return 0
	}
	return in.cancelled[in.stuck].due
}

// expire returns a request whose handler is now stuck, and no longer counts it. If there is
// none, it returns nil.
func (in *incoming) expire(now instant, limit int) *Incoming {
	if !passed(now, in.stuckAt(limit)) {
		return nil
	}
	request := in.cancelled[in.stuck].Incoming
	in.stuck++
	in.vacate(request)
	return request
}

// next removes and returns the request that has waited longest. It reports false if none can
// be served now.
func (in *incoming) next(limit int) (dueRequest, bool) {
	if len(in.waiting) == 0 || in.closed(limit) {
		return dueRequest{}, false
	}
	return in.first(), true
}

// first removes and returns the request that has waited longest.
func (in *incoming) first() dueRequest {
	first := in.waiting[0]
	in.waiting[0] = dueRequest{}
	in.waiting = in.waiting[1:]
	in.unqueue(first.Incoming)
	return first
}

// tooLate removes and returns a request that has waited for too long, or nil.
func (in *incoming) tooLate(now instant) *Incoming {
	if len(in.waiting) == 0 || !passed(now, in.waiting[0].due) {
		return nil
	}
	request := in.first().Incoming
	in.release(request)
	return request
}

func indexOf(in []dueRequest, request *Incoming) int {
	return slices.IndexFunc(in, func(other dueRequest) bool { return other.Incoming == request })
}

// onRequested serves, queues or refuses a request from the peer. While it is served, the timeouts
// of our own calls on its stream stand still, if the peer needs its answer in order to answer
// them.
func (c *core) onRequested(now instant, ev *event) {
	request := ev.incoming
	c.askedAt = now
	next, fault := c.incoming.judge(request, ev.timeout, c.options, c.draining)
	if next == refuseIt {
		c.refuse(request, fault)
		return
	}
	c.incoming.hold(request)
	if c.streams.asked(request) {
		c.pending.suspend(request.key.stream, now)
	}
	due := c.patienceEnds(now - ev.timeout)
	if next == serveIt {
		c.serve(request, due)
	} else {
		c.incoming.queue(request, due)
	}
}

// patienceEnds returns when a request that came at this time has waited for too long; 0: never.
func (c *core) patienceEnds(came instant) instant {
	if c.options.Patience < 0 {
		return 0
	}
	return came + c.options.Patience
}

// refuse answers a request that is not served.
func (c *core) refuse(request *Incoming, fault *jsonrpc.Error) {
	c.leaveUnserved(request, fault)
	frame := jsonrpc.AppendError(nil, request.key.id, fault)
	c.reply(outboundFrame{stream: request.key.stream, frame: frame, route: errorRoute(request.key.id, fault.Code), reply: true}, request.batch)
}

// refuseWaiting refuses the requests that are not served yet, because the Conn closes. They must
// get an answer, or their callers could not tell that they were not executed.
func (c *core) refuseWaiting() {
	for _, request := range slices.Clone(c.incoming.waiting) {
		c.incoming.forget(request.Incoming)
		c.refuse(request.Incoming, errShuttingDown)
	}
}

// serve serves a request whose handler must start before due; 0: at any time.
func (c *core) serve(request *Incoming, due instant) {
	c.incoming.serve(request)
	c.large = c.large || len(c.incoming.serving) > maxFree
	c.emit(effect{kind: serve, incoming: request, epoch: c.epoch, at: due})
	if request.streaming && c.draining {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrDraining})
	}
}

// leaveUnserved tells an Auditor, and the link that has room for it, of a request that ends without its handler.
func (c *core) leaveUnserved(request *Incoming, why error) {
	if c.audits || request.room != nil {
		c.emit(effect{kind: unserved, incoming: request, err: why})
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
	} // otherwise it has ended already: the answer and the cancellation may have crossed
}

// cancelIncoming ends the context of a request that is being served, or drops one that waits. If
// the handler still answers, the answer is not sent. The place of the handler stays taken until
// it returns or is stuck, or a peer that cancels at once could have any number of handlers
// running.
func (c *core) cancelIncoming(now instant, request *Incoming) {
	c.answered(now, request)
	if c.incoming.cancel(request, now+c.options.CancelGrace) {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrPeerCancelled})
	} else {
		c.leaveUnserved(request, ErrPeerCancelled)
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
		return // the handler ran for an incarnation that has ended
	}
	if answer {
		c.answered(now, ev.incoming)
		c.reply(outboundFrame{stream: ev.incoming.key.stream, frame: ev.payload, reply: true, answers: ev.incoming}, ev.incoming.batch)
		if ev.incoming.streaming && c.draining && ev.incoming.key.stream == transport.Main {
			c.sendCancel(ev.incoming.key.id, ErrDraining) // another stream ends with the answer
		}
	}
	c.serveNext(now)
}

// abandonStuck stops counting handlers that keep running long after their requests were
// cancelled. Without that, as many handlers as there are places could lock the peer out for good.
// Their memory still counts.
func (c *core) abandonStuck(now instant) {
	for request := c.incoming.expire(now, c.options.MaxServing); request != nil; request = c.incoming.expire(now, c.options.MaxServing) {
		c.emit(effect{kind: stuck, epoch: c.epoch, incoming: request})
	}
	c.serveNext(now)
}

// serveNext refuses the requests that have waited for too long, and serves others until no place
// is left. Nobody else starts a request that has waited, so they start in the order in which they
// came.
func (c *core) serveNext(now instant) {
	for late := c.incoming.tooLate(now); late != nil; late = c.incoming.tooLate(now) {
		c.answered(now, late)
		c.refuse(late, errTooLate(c.options.Patience))
	}
	for next, ok := c.incoming.next(c.options.MaxServing); ok; next, ok = c.incoming.next(c.options.MaxServing) {
		c.serve(next.Incoming, next.due)
	}
}
