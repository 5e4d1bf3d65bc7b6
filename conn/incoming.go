//bowline:pure

package conn

import (
	"fmt"
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
	waiting   []*Incoming
	bytes     int // of the params of all of them
}

func (in *incoming) len() int { return len(in.serving) + len(in.silent) + len(in.waiting) }

func (in *incoming) clear() { *in = incoming{} }

// fits reports whether a request's params can be held beside the others'. One
// always can be.
func (in *incoming) fits(request *Incoming, limit int) bool {
	return in.bytes == 0 || in.bytes+len(request.Params) <= limit
}

// release gives back what a request that is over has held.
func (in *incoming) release(request *Incoming) { in.bytes -= request.size }

// closed reports whether no further request can be served now.
func (in *incoming) closed(limit int) bool {
	return in.exclusive != nil || len(in.serving)+len(in.silent) >= limit
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

// onRequested serves a request, queues it, or refuses it: never all of them
// at once, however many the peer sends.
func (c *core) onRequested(ev *event) {
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
	case !c.incoming.closed(c.options.MaxServing):
		c.hold(request)
		c.serve(request)
	case len(c.incoming.waiting) < c.options.MaxWaiting:
		c.hold(request)
		c.incoming.waiting = append(c.incoming.waiting, request)
	default:
		c.refuseRequest(request, jsonrpc.CodeInternalError,
			fmt.Sprintf("overloaded: %d requests are being served and %d wait", c.options.MaxServing, c.options.MaxWaiting))
	}
}

func (c *core) hold(request *Incoming) {
	request.size = len(request.Params) // its handler may change the params
	c.incoming.bytes += request.size
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
}

func (c *core) refuseRequest(request *Incoming, code int64, message string) {
	frame := jsonrpc.AppendError(nil, request.key.id, &jsonrpc.Error{Code: code, Message: message})
	c.send(outboundFrame{stream: request.key.stream, frame: frame, reply: true})
}

// onCancelled ends the context of a request being served. Its answer, if it
// still comes, is not sent.
func (c *core) onCancelled(ev *event) {
	key := ev.incoming.key
	request, ok := c.incoming.find(key)
	if !ok {
		return // finished, or never made: cancellation races are normal
	}
	if _, serving := c.incoming.serving[key]; !serving {
		c.incoming.forget(request)
		return
	}
	delete(c.incoming.serving, key)
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
func (c *core) onHandled(ev *event) {
	request := ev.incoming
	switch {
	case c.incoming.serving[request.key] == request:
		delete(c.incoming.serving, request.key)
		c.send(ev.out)
	case c.incoming.silent[request]:
		delete(c.incoming.silent, request)
	default:
		return // of an incarnation that is over
	}
	c.incoming.release(request)
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
		c.lose(now, Reason{Malformed, fmt.Errorf("%d malformed frames in a row, the last: %w", c.malformedRun, ev.err)}, ev.random, nil)
		return
	}
	if ev.out.frame != nil {
		c.send(ev.out)
	}
}
