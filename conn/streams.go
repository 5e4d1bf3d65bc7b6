//bowline:pure

package conn

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A stream is one stream of the link: Main, or one that lasts until the requests on it are
// answered (ADR-0019). A stream that the peer has begun must end with exactly one last frame of
// ours, or with endStream: over HTTP it is a response that somebody waits for.
type stream struct {
	number   transport.Stream
	request  int64       // our request whose answer it carries; 0 for Main, and if the peer began the stream
	withheld int         // how many processed frames have not been granted again yet
	complete bool        // the peer sends nothing more on it
	nested   int32       // how many of the peer's requests belong to our calls
	requests []*Incoming // the peer's unanswered requests, in order; nil for Main
	resumeAt instant     // when to resume the stream; 0 if it was not cut
	resumed  instant     // when it was resumed last
	schedule *schedule   // the delays before it is resumed; nil if it was not cut, or a message has arrived since
}

// streams are the streams of the present link. A byte stream has only Main. A stream that is not
// in others is over, and whatever still comes on it changes nothing.
type streams struct {
	main      stream
	others    map[transport.Stream]*stream
	mute      int       // how many of the other streams are complete
	throttled []*stream // the streams whose credit is withheld, oldest first
	cut       []*stream // the streams to be resumed
}

// park gives up the memory that is kept for later streams, if there are none now.
func (s *streams) park() (throttled []*stream) {
	if len(s.others) > 0 || len(s.throttled) > 0 || len(s.cut) > 0 {
		return nil
	}
	if cap(s.throttled) <= maxFree {
		throttled = s.throttled
	}
	s.others, s.throttled, s.cut = nil, nil, nil
	return throttled
}

// clear forgets all streams. It keeps the memory of the list that Main is often in.
func (s *streams) clear() {
	throttled := s.throttled
	clear(throttled)
	*s = streams{throttled: throttled[:0]}
}

// areIdle reports whether there is only Main, about which nothing need be remembered.
func (s *streams) areIdle() bool {
	main := &s.main
	return len(s.others) == 0 && len(s.throttled) == 0 && len(s.cut) == 0 &&
		main.withheld == 0 && main.resumeAt == 0 && main.schedule == nil && !main.complete && main.nested == 0
}

// find returns a stream, or nil when it is over.
func (s *streams) find(number transport.Stream) *stream {
	if number == transport.Main {
		return &s.main
	}
	return s.others[number]
}

// add begins a stream, for a request of ours or, with 0, by the peer.
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
	if gone.complete {
		s.mute--
	}
	s.throttled = slices.DeleteFunc(s.throttled, func(other *stream) bool { return other == gone })
	s.cut = slices.DeleteFunc(s.cut, func(other *stream) bool { return other == gone })
}

// deadline is when to resume the next stream.
func (s *streams) deadline() instant {
	var first instant
	for _, cut := range s.cut {
		first = earliest(first, cut.resumeAt)
	}
	return first
}

// interrupt schedules when to resume a stream that was cut: after the delay that the peer has
// asked for. If it has asked for none, or the last attempt to resume brought no message and did
// not last either, not before the stream's own backoff. A second cut while one is scheduled
// changes nothing.
func (s *streams) interrupt(cut *stream, now instant, o *Tuning, ev *event) {
	if cut.resumeAt != 0 {
		return
	}
	wait, fruitless := ev.timeout, cut.schedule != nil && now-cut.resumed < o.ProvenAfter
	if !fruitless {
		cut.schedule = newSchedule(o)
	}
	if fruitless || wait == 0 {
		wait = max(wait, cut.schedule.next(ev.random))
	}
	cut.resumeAt = now + wait
	s.cut = append(s.cut, cut)
}

// resumable takes out the streams that are to be resumed now.
func (s *streams) resumable(now instant) (due []transport.Stream) {
	s.cut = slices.DeleteFunc(s.cut, func(cut *stream) bool {
		if !passed(now, cut.resumeAt) {
			return false
		}
		cut.resumeAt, cut.resumed = 0, now
		due = append(due, cut.number)
		return true
	})
	return due
}

// consume notes that a stream has brought a frame, which is about to be processed. A stream whose
// last frame it was gets no more credit.
func (s *streams) consume(number transport.Stream, frames int, last bool) {
	used := s.find(number)
	if used == nil || frames == 0 { // the stream has ended, or this is not the last message of the frame
		return
	}
	if last && used != &s.main {
		if !used.complete {
			used.complete = true
			s.mute++
		}
		return
	}
	if used.withheld == 0 {
		s.throttled = append(s.throttled, used)
	}
	used.withheld += frames
}

// proceed notes that a stream has brought a message.
func (s *streams) proceed(number transport.Stream) {
	if on := s.find(number); on != nil {
		on.schedule = nil
	}
}

// asked notes that the peer waits for the answer to a request. It reports whether to suspend
// the timeouts of our calls on the stream meanwhile.
func (s *streams) asked(request *Incoming) (suspend bool) {
	on := s.find(request.key.stream)
	if on == nil {
		return false
	}
	request.belongs = on.request
	if request.nested {
		on.nested++
	}
	if on != &s.main {
		on.requests = append(on.requests, request)
	}
	return request.nested
}

// answered notes that a request was answered, or never will be. It reports whether to resume
// the timeouts of our calls on the stream.
func (s *streams) answered(request *Incoming) (resume bool) {
	on := s.find(request.key.stream)
	if on == nil {
		return false
	}
	on.requests = slices.DeleteFunc(on.requests, func(other *Incoming) bool { return other == request })
	if !request.nested {
		return false
	}
	on.nested--
	return on.nested == 0
}

// isLastReply reports whether a reply ends its stream, and drops the stream then.
func (s *streams) isLastReply(number transport.Stream) bool {
	on := s.others[number]
	if on == nil || !on.complete || on.request != 0 || len(on.requests) > 0 {
		return false
	}
	s.drop(number)
	return true
}

// granted calls yield with how many frames each stream may deliver again.
func (s *streams) granted(yield func(transport.Stream, int)) {
	for _, throttled := range s.throttled {
		yield(throttled.number, throttled.withheld)
		throttled.withheld = 0
	}
	clear(s.throttled)
	s.throttled = s.throttled[:0]
}

// credit returns how many frames the streams may deliver, when each was granted as many.
func (s *streams) credit(each int) int {
	frames := each * (1 + len(s.others) - s.mute)
	for _, throttled := range s.throttled {
		frames -= throttled.withheld
	}
	return frames
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
		c.pending.resumeOne(r, now) // requests of the peer on other streams do not belong to this request
	}
	c.streams.add(ev.stream, ev.id)
	c.emit(effect{kind: grant, epoch: c.epoch, stream: ev.stream, frames: c.options.Credit})
}

// onStreamLost handles the loss of a stream whose link continues. Only the requests of the stream
// end. If the stream can be resumed, they wait. Main has no requests of its own, so its loss ends
// none.
func (c *core) onStreamLost(now instant, ev *event) {
	s := c.streams.find(ev.stream)
	switch {
	case s == nil:
	case ev.resumable:
		c.streams.interrupt(s, now, c.options, ev)
	case s == &c.streams.main: // no request belongs to Main alone
	case ev.serving:
		for _, request := range slices.Clone(s.requests) {
			if c.incoming.waitingByKey[request.key] == request {
				c.cancelIncoming(now, request)
			}
		}
	default:
		c.streams.drop(s.number)
		c.abandonStream(now, s, ev.reason)
	}
}

// abandonStream ends the requests of a stream that has ended: our request that it would have
// answered, or the peer's requests that came on it. What belongs to other streams goes on.
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
	for _, id := range c.pending.ids() { // end the requests that handlers of these requests have made on this stream
		if c.pending.byID[id].via == s.number {
			r, _ := c.pending.take(id)
			c.outbound.drop(id)
			c.settle(now, r, ending{LinkLost, r.unanswered(), why}, nil)
		}
	}
}

// endStream ends a stream from this side. Main cannot end: that is the end of the link.
func (c *core) endStream(number transport.Stream) {
	s := c.streams.find(number)
	if s == nil || number == transport.Main {
		return
	}
	c.streams.drop(number)
	if s.request == 0 || !s.complete { // otherwise the peer has ended the stream
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
			last.last = true // so the stream does not end before this reply
			c.streams.drop(number)
			return
		}
		c.endStream(number)
	}
}

// grantCredit ends a step: it gives back the credit that the step's frames have used, unless
// there is a reason to withhold it. It comes after the event was handled, so that the peer cannot
// deliver faster than this side works.
func (c *core) grantCredit(now instant) {
	if len(c.streams.throttled) == 0 && c.flow.stall == 0 {
		return
	}
	if c.stallFor(now, c.stallReason(now)); c.flow.stall != 0 {
		return
	}
	attached := c.attached()
	c.streams.granted(func(number transport.Stream, frames int) {
		if attached {
			c.emit(effect{kind: grant, epoch: c.epoch, stream: number, frames: frames})
		}
	})
}

// stallReason returns why to withhold credit, or 0. A pause is safe only while
// neither side waits for the other: otherwise the answer that a caller waits for,
// or the cancellation of a request, would not be read.
func (c *core) stallReason(now instant) Stall {
	switch {
	case len(c.streams.throttled) == 0:
		return 0
	case c.outbound.congested():
		return RepliesWait
	case c.flow.mayPause(now) && !c.draining && c.pending.calls == 0 && c.incoming.len() == len(c.incoming.streaming):
		return NotificationsWait
	default:
		return 0
	}
}

// stallFor changes the reason for which credit is withheld. The silence of a link that was not
// read says nothing about the peer, so that counts as heard when the stall ends.
func (c *core) stallFor(now instant, why Stall) {
	before, since := c.flow.stall, c.flow.since
	if why == before {
		return
	}
	if before != 0 {
		c.emit(effect{kind: stallEnded, epoch: c.epoch, stall: before, at: now - since})
		c.liveness.hear(now) // the link was not read until now
	}
	c.flow.change(now, why)
	if why != 0 {
		c.emit(effect{kind: stallBegun, epoch: c.epoch, stall: why})
	}
}

// flow decides when the streams of the link may deliver (ADR-0004). It may slow a peer down, and
// must never stop one: each pause has an end, whatever the handler does.
type flow struct {
	crowded bool          // many notifications wait for the handler
	paused  time.Duration // how long the link was paused because of that, without the present pause
	stall   Stall         // why credit is withheld; 0 if it is not
	since   instant       // since when credit is withheld
	until   instant       // when the present pause must end; 0 if there is none
}

// A Stall says why a Conn has temporarily stopped reading from its link.
type Stall uint8

const (
	_                 Stall = iota
	RepliesWait             // the peer does not read the answers to its requests
	NotificationsWait       // the handler is behind with notifications, and neither side waits for an answer
	stalls
)

var stallNames = [stalls]string{"", "replies wait", "notifications wait"}

func (s Stall) String() string { return stallNames[s] }

// maxPause bounds how long a link is not read because of notifications. It is
// shorter than the silence after which a peer takes this side for dead.
const maxPause = 5 * time.Second

// mayPause reports whether the link may be paused (for longer).
func (f *flow) mayPause(now instant) bool {
	return f.crowded && f.pausedFor(now) < maxPause
}

// pausedFor is how long the link was paused since notifications became many.
func (f *flow) pausedFor(now instant) time.Duration {
	if f.stall == NotificationsWait {
		return f.paused + now - f.since
	}
	return f.paused
}

// change changes the reason for which credit is withheld, 0 for none.
func (f *flow) change(now instant, why Stall) {
	f.paused = f.pausedFor(now)
	f.stall, f.since, f.until = why, now, 0
	if why == NotificationsWait {
		f.until = now + maxPause - f.paused
	}
}

// setCrowded notes that many notifications wait now, or few.
func (f *flow) setCrowded(crowded bool) { f.crowded, f.paused = crowded, 0 }
