//bowline:pure

package conn

import (
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// A stream is one stream of the link: Main, or one that lasts until the requests
// on it are answered (ADR-0019).
type stream struct {
	number   transport.Stream
	request  int64       // the request of ours that it answers; 0 for Main, and if the peer began it
	withheld int         // frames that were processed and not granted again yet
	complete bool        // the peer sends nothing more on it
	nested   int32       // how many of the requests belong to calls of ours
	requests []*Incoming // unanswered requests of the peer's, in order; not kept for Main
	resumeAt instant     // when to resume it; 0 unless it was cut
	schedule *schedule   // of resuming it; nil unless it was cut and has brought nothing since
}

// streams are the streams of the present link. A byte stream has only Main.
type streams struct {
	main   stream
	others map[transport.Stream]*stream
	mute   int       // how many of the others are complete
	owed   []*stream // the streams that credit is withheld from, oldest first
	cut    []*stream // the streams to be resumed
}

// park gives up the memory that is kept for later streams, if there are none now.
func (s *streams) park() (owed []*stream) {
	if len(s.others) > 0 || len(s.owed) > 0 || len(s.cut) > 0 {
		return nil
	}
	if cap(s.owed) <= maxFree {
		owed = s.owed
	}
	s.others, s.owed, s.cut = nil, nil, nil
	return owed
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
	if gone.complete {
		s.mute--
	}
	s.owed = slices.DeleteFunc(s.owed, func(other *stream) bool { return other == gone })
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

// interrupt schedules when to resume a stream that was cut: after the delay that
// the peer has asked for. If it has asked for none, or the last attempt to resume
// brought nothing, not before the stream's own backoff either.
func (s *streams) interrupt(cut *stream, now instant, o *Options, ev *event) {
	if cut.resumeAt != 0 {
		return
	}
	if ev.heard {
		cut.schedule = nil
	}
	wait, fruitless := ev.timeout, cut.schedule != nil
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
		cut.resumeAt = 0
		due = append(due, cut.number)
		return true
	})
	return due
}

// consume notes that a stream has brought a frame, which is about to be
// processed.
func (s *streams) consume(number transport.Stream, frames int, last bool) {
	used := s.find(number)
	if used == nil || frames == 0 { // it has ended, or this is not the last message of the frame
		return
	}
	used.schedule = nil
	if last && used != &s.main {
		if !used.complete {
			used.complete = true
			s.mute++
		}
		return
	}
	if used.withheld == 0 {
		s.owed = append(s.owed, used)
	}
	used.withheld += frames
}

// asked notes that the peer waits for the answer to a request. It reports whether to suspend
// the timeouts of our calls on the stream meanwhile.
func (s *streams) asked(request *Incoming) (suspend bool) {
	on := s.find(request.key.stream)
	if on == nil {
		return false
	}
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
	for _, owed := range s.owed {
		yield(owed.number, owed.withheld)
		owed.withheld = 0
	}
	clear(s.owed)
	s.owed = s.owed[:0]
}

// credit returns how many frames the streams may deliver, when each was granted as many.
func (s *streams) credit(each int) int {
	frames := each * (1 + len(s.others) - s.mute)
	for _, owed := range s.owed {
		frames -= owed.withheld
	}
	return frames
}
