//bowline:pure

package conn

import (
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// A stream is one lane of the link: Main, or an exchange that lasts until it
// has been answered (ADR-0019).
type stream struct {
	number   transport.Stream
	request  int64       // ours, whose answers it carries; 0 for Main and for what the peer has begun
	withheld int         // frames processed, and not granted again yet
	complete bool        // the peer sends nothing more on it
	requests []*Incoming // the peer's, in order, that have no answer yet; not kept for Main
	nested   int         // of the peer's that belong to calls of ours, and have no answer yet
	resumeAt instant     // when to take it up again; 0 unless it was cut
	schedule *schedule   // of taking it up; nil unless it was cut since it last brought something
}

// streams are the lanes of the present link. A byte stream has Main alone.
type streams struct {
	main   stream
	others map[transport.Stream]*stream
	owed   []*stream // those that credit is withheld from, oldest first
	cut    []*stream // those to be taken up again
}

func (s *streams) park() {
	if len(s.others) == 0 && len(s.owed) == 0 && len(s.cut) == 0 {
		s.others, s.owed, s.cut = nil, nil, nil
	}
}

// find returns a stream, or nil when it is over.
func (s *streams) find(number transport.Stream) *stream {
	if number == transport.Main {
		return &s.main
	}
	return s.others[number]
}

func (s *streams) add(number transport.Stream, request int64) {
	if s.others == nil {
		s.others = make(map[transport.Stream]*stream)
	}
	s.others[number] = &stream{number: number, request: request}
}

// drop forgets a stream that is over.
func (s *streams) drop(number transport.Stream) {
	gone := s.others[number]
	if gone == nil {
		return
	}
	delete(s.others, number)
	s.owed = slices.DeleteFunc(s.owed, func(other *stream) bool { return other == gone })
	s.cut = slices.DeleteFunc(s.cut, func(other *stream) bool { return other == gone })
}

// deadline is when the next stream is to be taken up again.
func (s *streams) deadline() instant {
	var first instant
	for _, cut := range s.cut {
		first = earliest(first, cut.resumeAt)
	}
	return first
}

// onStreamOpened gives a new stream its first credit. One for a request that
// has ended meanwhile is ended too.
func (c *core) onStreamOpened(now instant, ev *event) {
	if ev.id != 0 {
		r, ok := c.pending.byID[ev.id]
		if !ok {
			c.emit(effect{kind: endStream, epoch: c.epoch, stream: ev.stream})
			return
		}
		r.stream = ev.stream
		c.resumeTimeout(now, r) // what is asked elsewhere is not for its sake
	}
	c.streams.add(ev.stream, ev.id)
	c.emit(effect{kind: grant, epoch: c.epoch, stream: ev.stream, frames: c.options.Credit})
}

// onStreamLost hears that a stream is over while the link lives on: it takes
// along what belongs to it, and nothing else.
func (c *core) onStreamLost(now instant, ev *event) {
	s := c.streams.find(ev.stream)
	switch {
	case s == nil:
	case ev.resumable:
		c.cutStream(now, s, ev)
	case s == &c.streams.main: // nothing belongs to it
	default:
		c.streams.drop(s.number)
		c.abandonStream(now, s, ev.reason)
	}
}

// cutStream has a stream taken up again, not before the peer wants it.
func (c *core) cutStream(now instant, s *stream, ev *event) {
	if s.resumeAt != 0 {
		return
	}
	if s.schedule == nil {
		s.schedule = newSchedule(c.options)
	}
	s.resumeAt = now + max(ev.timeout, s.schedule.next(ev.random))
	c.streams.cut = append(c.streams.cut, s)
}

// resumeStreams takes up the streams whose time has come.
func (c *core) resumeStreams(now instant) {
	waiting := c.streams.cut[:0]
	for _, s := range c.streams.cut {
		if !passed(now, s.resumeAt) {
			waiting = append(waiting, s)
			continue
		}
		s.resumeAt = 0
		c.emit(effect{kind: resumeStream, epoch: c.epoch, stream: s.number})
	}
	clear(c.streams.cut[len(waiting):])
	c.streams.cut = waiting
}

// abandonStream ends what only this stream could have carried on: the request
// that it was to answer, or those that nobody hears the answers of.
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
	for _, id := range c.pending.ids() { // what the handlers have asked in return
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

// use notes that a stream has brought a frame, which is about to be processed.
func (c *core) use(ev *event) {
	s := c.streams.find(ev.stream)
	if s == nil || ev.frames == 0 { // it is over, or more of the frame is to come
		return
	}
	s.schedule = nil
	if ev.last && s != &c.streams.main {
		s.complete = true
		return
	}
	if s.withheld == 0 {
		c.streams.owed = append(c.streams.owed, s)
	}
	s.withheld += ev.frames
}

// finishStream ends a stream that brings nothing more, once nothing is owed on
// it either.
func (c *core) finishStream(now instant, number transport.Stream) {
	s := c.streams.find(number)
	switch {
	case s == nil || !s.complete:
	case s.request != 0:
		c.streams.drop(number)
		c.abandonStream(now, s, Reason{StreamLost, transport.ErrPeerClosed})
	case len(s.requests) == 0:
		if last := c.outbound.lastReply(number); last != nil {
			last.last = true // the end must not overtake it
			c.streams.drop(number)
			return
		}
		c.endStream(number)
	}
}

// owe notes that an answer to a request of the peer's is due.
func (c *core) owe(now instant, request *Incoming) {
	s := c.streams.find(request.key.stream)
	if s == nil {
		return
	}
	if request.nested {
		s.nested++
		c.suspendTimeouts(now, s.number)
	}
	if s != &c.streams.main {
		s.requests = append(s.requests, request)
	}
}

// acquit notes that the answer is at hand, or will not be given.
func (c *core) acquit(now instant, request *Incoming) {
	s := c.streams.find(request.key.stream)
	if s == nil {
		return
	}
	s.requests = slices.DeleteFunc(s.requests, func(other *Incoming) bool { return other == request })
	if !request.nested {
		return
	}
	if s.nested--; s.nested == 0 {
		c.resumeTimeouts(now, s.number)
	}
}

// reply sends an answer to the peer. The last one ends a stream that the peer
// has begun.
func (c *core) reply(out outboundFrame) {
	if s := c.streams.others[out.stream]; s != nil && s.complete && s.request == 0 && len(s.requests) == 0 {
		out.last = true
		c.streams.drop(out.stream)
	}
	c.send(out)
}
