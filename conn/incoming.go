//bowline:pure

package conn

import (
	"fmt"
	"iter"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// incomingKey names a request of the peer's. Ids are unique per stream only.
type incomingKey struct {
	stream transport.Stream
	id     jsonrpc.ID
}

// incoming holds the peer's requests: those being served, and those that wait
// for a place. What was cancelled stays, unanswered, until its handler returns.
type incoming struct {
	serving   map[incomingKey]*Incoming
	silent    map[*Incoming]bool // being served, but nobody wants the answer
	exclusive *Incoming          // being served, and all others wait for it
	streaming []*Incoming        // of those being served, the ones that stay until a side ends them
	waiting   []*Incoming
	bytes     int // that all of them hold
}

func (in *incoming) len() int { return len(in.serving) + len(in.silent) + len(in.waiting) }

func (in *incoming) park() {
	if in.len() == 0 {
		in.clear()
	}
}

func (in *incoming) clear() { *in = incoming{} }

// fits reports whether a request can be held beside the others. One always can
// be.
func (in *incoming) fits(request *Incoming, limit int) bool {
	return in.bytes == 0 || in.bytes+request.size <= limit
}

// release gives back what a request that is over has held.
func (in *incoming) release(request *Incoming) { in.bytes -= request.size }

// closed reports whether no further request can be served now.
func (in *incoming) closed(limit int) bool {
	return in.exclusive != nil || len(in.serving)+len(in.silent)-len(in.streaming) >= limit
}

func (in *incoming) find(key incomingKey) (*Incoming, bool) {
	if request, ok := in.serving[key]; ok {
		return request, true
	}
	for _, request := range in.waiting {
		if request.key == key {
			return request, true
		}
	}
	return nil, false
}

// named returns the request that a cancellation means. What comes on Main may
// be of any stream; should several have that id, the earliest is meant.
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
			if !yield(request) {
				return
			}
		}
	}
}

// onRequested serves a request, queues it, or refuses it: never all of them
// at once, however many the peer sends.
func (c *core) onRequested(now instant, ev *event) {
	request := ev.incoming
	_, known := c.incoming.find(request.key)
	switch {
	case known:
		c.refuseRequest(request, jsonrpc.CodeInvalidRequest, "a request with this id is being served")
	case c.draining:
		c.refuseRequest(request, jsonrpc.CodeInternalError, "shutting down")
	case !c.incoming.fits(request, c.options.MaxHeld):
		c.refuseRequest(request, jsonrpc.CodeInternalError,
			fmt.Sprintf("overloaded: requests of %d bytes are held", c.incoming.bytes))
	case request.streaming && len(c.incoming.streaming) >= c.options.MaxStreaming:
		c.refuseRequest(request, jsonrpc.CodeInternalError,
			fmt.Sprintf("overloaded: %d requests stay open", c.options.MaxStreaming))
	case request.streaming && c.incoming.exclusive == nil, !c.incoming.closed(c.options.MaxServing):
		c.hold(now, request)
		c.serve(request)
	case len(c.incoming.waiting) < c.options.MaxWaiting:
		c.hold(now, request)
		c.incoming.waiting = append(c.incoming.waiting, request)
	default:
		c.refuseRequest(request, jsonrpc.CodeInternalError,
			fmt.Sprintf("overloaded: %d requests are being served and %d wait", c.options.MaxServing, c.options.MaxWaiting))
	}
}

func (c *core) hold(now instant, request *Incoming) {
	c.incoming.bytes += request.size
	c.owe(now, request)
}

func (c *core) serve(request *Incoming) {
	if c.incoming.serving == nil {
		c.incoming.serving = make(map[incomingKey]*Incoming)
	}
	c.incoming.serving[request.key] = request
	if request.exclusive {
		c.incoming.exclusive = request
	}
	c.emit(effect{kind: serve, incoming: request, epoch: c.epoch})
	if request.streaming {
		c.incoming.streaming = append(c.incoming.streaming, request)
	}
	if request.streaming && c.draining {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrDraining})
	}
}

func (c *core) refuseRequest(request *Incoming, code int64, message string) {
	frame := jsonrpc.AppendError(nil, request.key.id, &jsonrpc.Error{Code: code, Message: message})
	c.reply(outboundFrame{stream: request.key.stream, frame: frame, route: errorRoute(request.key.id, code), reply: true})
}

// onCancelled hears that the peer has abandoned one of its requests, or ends a
// streaming one of ours.
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
	} // else it is finished, or was never made: cancellation races are normal
}

// cancelIncoming ends the context of a request being served, or forgets one
// that waits. Its answer, if it still comes, is not sent.
func (c *core) cancelIncoming(now instant, request *Incoming) {
	c.acquit(now, request)
	defer c.finishStream(now, request.key.stream)
	if c.incoming.serving[request.key] != request {
		c.incoming.forget(request)
		return
	}
	delete(c.incoming.serving, request.key)
	if c.incoming.silent == nil {
		c.incoming.silent = make(map[*Incoming]bool)
	}
	c.incoming.silent[request] = true
	c.emit(effect{kind: cancelServing, incoming: request, err: ErrPeerCancelled})
}

func (in *incoming) forget(request *Incoming) {
	for i, waiting := range in.waiting {
		if waiting == request {
			in.waiting = slices.Delete(in.waiting, i, i+1)
			in.release(request)
			return
		}
	}
}

// onHandled sends the answer of a handler that has returned, and gives its
// place to those that wait.
func (c *core) onHandled(now instant, ev *event) {
	request := ev.incoming
	switch {
	case c.incoming.serving[request.key] == request:
		delete(c.incoming.serving, request.key)
		c.acquit(now, request)
		c.reply(ev.out)
	case c.incoming.silent[request]:
		delete(c.incoming.silent, request)
	default:
		return // of an incarnation that is over
	}
	c.incoming.release(request)
	if request.streaming {
		c.incoming.streaming = slices.DeleteFunc(c.incoming.streaming, func(other *Incoming) bool { return other == request })
	}
	if c.incoming.exclusive == request {
		c.incoming.exclusive = nil
	}
	for len(c.incoming.waiting) > 0 && !c.incoming.closed(c.options.MaxServing) {
		next := c.incoming.waiting[0]
		c.incoming.waiting = c.incoming.waiting[1:]
		c.serve(next)
	}
}

// onMalformed counts a frame that is no message, and gives up on a peer that
// sends nothing else.
func (c *core) onMalformed(now instant, ev *event) {
	c.emit(effect{kind: violation, epoch: c.epoch, err: ev.err})
	c.malformedRun++
	if c.malformedRun >= c.options.MaxMalformed {
		c.lose(now, Reason{Malformed, fmt.Errorf("%d malformed frames in a row, the last: %w", c.malformedRun, ev.err)}, ev.random, 0, nil)
		return
	}
	if ev.out.frame != nil {
		c.reply(ev.out)
	}
}

// releaseStreaming tells the handlers of requests that would stay for ever to
// come to an end. Their answers are still sent.
func (c *core) releaseStreaming() {
	for _, request := range c.incoming.streaming {
		c.emit(effect{kind: cancelServing, incoming: request, err: ErrDraining})
	}
}
