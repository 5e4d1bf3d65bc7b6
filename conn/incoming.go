//bowline:pure

package conn

import (
	"fmt"
	"iter"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// incomingKey identifies a request of the peer's. Ids are unique per stream only.
type incomingKey struct {
	stream transport.Stream
	id     jsonrpc.ID
}

// incoming holds the peer's requests that are being served or wait for that. A
// cancelled request is kept until its handler returns, but is not answered. After
// Options.CancelGrace it is stuck: it no longer counts, except for its bytes.
type incoming struct {
	serving      map[incomingKey]*Incoming
	cancelled    []cancelledRequest        // oldest first
	stuck        int                       // how many of cancelled, from the first, are stuck
	exclusive    *Incoming                 // being served; all others wait for it
	streaming    []*Incoming               // being served, and open until either side ends them
	waiting      []*Incoming               // oldest first
	waitingByKey map[incomingKey]*Incoming // the same, since there may be thousands
	bytes        int                       // that all of them hold
}

// A cancelledRequest was cancelled, and its handler has not returned.
type cancelledRequest struct {
	*Incoming
	due instant // when it is stuck
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
	in.clear()
	return given
}

func (in *incoming) clear() { *in = incoming{} }

// fits reports whether there is room for the bytes of a request. There always is for a
// single one.
func (in *incoming) fits(request *Incoming, limit int) bool {
	return in.bytes == 0 || in.bytes+request.size <= limit
}

// hold counts what a request holds.
func (in *incoming) hold(request *Incoming) { in.bytes += request.size }

// release gives back the bytes of a request that has ended.
func (in *incoming) release(request *Incoming) { in.bytes -= request.size }

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
			if !yield(request) {
				return
			}
		}
	}
}

// A verdict is what becomes of a new request of the peer's.
type verdict uint8

const (
	refuseIt verdict = iota
	serveIt
	queueIt
)

// judge decides whether a request is served now, waits, or is refused, and why.
func (in *incoming) judge(request *Incoming, o *Options, draining bool) (verdict, *jsonrpc.Error) {
	overloaded := func(format string, args ...any) (verdict, *jsonrpc.Error) {
		return refuseIt, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded: " + fmt.Sprintf(format, args...)}
	}
	_, known := in.find(request.key)
	switch {
	case known:
		return refuseIt, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "a request with this id is being served"}
	case draining:
		return refuseIt, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "shutting down"}
	case !in.fits(request, o.MaxHeld):
		return overloaded("requests of %d bytes are held", in.bytes)
	case request.streaming && len(in.streaming) >= o.MaxStreaming:
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

// queue notes that a request waits.
func (in *incoming) queue(request *Incoming) {
	if in.waitingByKey == nil {
		in.waitingByKey = make(map[incomingKey]*Incoming)
	}
	in.waiting, in.waitingByKey[request.key] = append(in.waiting, request), request
}

// cancel removes a request that is not to be answered any more. It reports whether its
// handler runs, which is stuck if it has not returned at due.
func (in *incoming) cancel(request *Incoming, due instant) (running bool) {
	if in.serving[request.key] != request {
		in.forget(request)
		return false
	}
	delete(in.serving, request.key)
	in.cancelled = append(in.cancelled, cancelledRequest{request, due})
	return true
}

// forget removes a request that waits.
func (in *incoming) forget(request *Incoming) {
	if at := slices.Index(in.waiting, request); at >= 0 {
		in.waiting = slices.Delete(in.waiting, at, at+1)
		delete(in.waitingByKey, request.key)
		in.release(request)
	}
}

// finish notes that the handler of a request has returned. It reports whether
// its answer is wanted, and whether it was known at all.
func (in *incoming) finish(request *Incoming) (answer, known bool) {
	if in.serving[request.key] == request {
		delete(in.serving, request.key)
		answer = true
	} else {
		at := slices.IndexFunc(in.cancelled, func(other cancelledRequest) bool { return other.Incoming == request })
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

// deadline returns when the next handler is stuck; 0: never.
func (in *incoming) deadline(limit int) instant {
	if in.stuck == len(in.cancelled) || in.stuck >= stuckPerPlace*limit {
		return 0
	}
	return in.cancelled[in.stuck].due
}

// expire returns a request whose handler is now stuck, and no longer counts it. If there is
// none, it returns nil.
func (in *incoming) expire(now instant, limit int) *Incoming {
	if !passed(now, in.deadline(limit)) {
		return nil
	}
	request := in.cancelled[in.stuck].Incoming
	in.stuck++
	in.vacate(request)
	return request
}

// next removes and returns the request that has waited longest, or nil if none can
// be served now.
func (in *incoming) next(limit int) *Incoming {
	if len(in.waiting) == 0 || in.closed(limit) {
		return nil
	}
	next := in.waiting[0]
	in.waiting[0] = nil
	in.waiting = in.waiting[1:]
	delete(in.waitingByKey, next.key)
	return next
}
