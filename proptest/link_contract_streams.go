package proptest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// streamsKeepOrder sends some requests. Then it sends notifications and an answer
// for each request, in random order, on the stream of the request, or on Main if
// the link has no other stream.
func streamsKeepOrder(rt *rapid.T, p *pair) {
	p.bind()
	before := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 4).Draw(rt, "notifications before each answer")
	portions := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 5).Draw(rt, "credit")
	streams := p.request(len(before))
	var turns []int
	for i, n := range before {
		for range n + 1 {
			turns = append(turns, i)
		}
	}
	p.from.grant(len(turns)) // for a link whose only stream is Main
	sent := make([]int, len(before))
	for _, i := range rapid.Permutation(turns).Draw(rt, "turns") {
		o := notification(0, frameOf(i*most+sent[i], 64))
		if sent[i] == before[i] {
			o = answer(i, sent[i])
		}
		o.Stream = streams[i]
		p.to.sendOut(o)
		sent[i]++
	}
	p.from.takeAll(len(turns), portions)
	p.from.checkLanes(before)
}

// most is greater than the number of frames of any request in a trial.
const most = 100

// streamsEndOnce ends a link, from either side, after some of its requests were
// answered.
func streamsEndOnce(rt *rapid.T, p *pair) {
	p.bind()
	requests := rapid.IntRange(1, 4).Draw(rt, "requests")
	streams := p.request(requests)
	answered := rapid.IntRange(0, requests).Draw(rt, "answered")
	p.from.grant(answered)
	for i := range answered {
		o := answer(i, 0)
		o.Stream = streams[i]
		p.to.sendOut(o)
	}
	if rapid.Bool().Draw(rt, "answers are taken first") {
		p.from.takeAll(answered, []int{1})
	}
	if rapid.Bool().Draw(rt, "receiver closes first") {
		p.to.close(0)
	}
	p.from.close(0)
}

// request sends requests, and returns on which stream each has reached the peer.
func (p *pair) request(n int) []transport.Stream {
	p.t.Helper()
	p.to.grant(n) // for a link whose only stream is Main
	for i := range n {
		p.from.sendOut(request(i))
	}
	streams := make([]transport.Stream, n)
	for seen := 0; seen < n; {
		p.to.wait("a request", func(e *end) bool { return len(e.starved()) > 0 || e.total() == n })
		for _, stream := range p.to.starving() {
			p.to.grantOn(stream, 1)
		}
		seen = p.to.snapshot(func(e *end) int { return e.total() })
	}
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	for stream, l := range p.to.lanes {
		for _, frame := range l.received {
			i := -1
			if _, err := fmt.Sscanf(string(frame), requestFormat, &i); err != nil || i < 0 || i >= n {
				p.t.Fatalf("%s: received %q on stream %d for a request", p.to.name, frame, stream)
			}
			streams[i] = stream
		}
	}
	return streams
}

// takeAll receives the given number of frames of all streams, and grants credit in
// the given portions.
func (e *end) takeAll(frames int, portions []int) {
	e.t.Helper()
	for turn := 0; ; {
		e.wait("a frame of a stream", func(e *end) bool { return e.total() >= frames || len(e.starved()) > 0 })
		if e.snapshot((*end).total) >= frames {
			return
		}
		for _, stream := range e.starving() {
			e.grantOn(stream, portions[turn%len(portions)])
			turn++
		}
	}
}

// total counts the frames of all streams. The caller holds mu.
func (e *end) total() (n int) {
	for _, l := range e.lanes {
		n += len(l.received)
	}
	return n
}

// starved lists the streams, other than Main, that have no credit left and are not
// closed. The caller holds mu.
func (e *end) starved() (streams []transport.Stream) {
	for _, stream := range slices.Sorted(maps.Keys(e.lanes)) {
		if l := e.lanes[stream]; stream != transport.Main && !l.closed && len(l.received) >= l.granted {
			streams = append(streams, stream)
		}
	}
	return streams
}

func (e *end) starving() []transport.Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.starved()
}

// checkLanes checks that the notifications of each request, and then its answer,
// arrived in order on one stream, and that this stream has ended.
func (e *end) checkLanes(before []int) {
	e.t.Helper()
	for i, notifications := range before {
		tag := transport.Tag(i + 1)
		e.wait("the end of a stream", func(e *end) bool { _, l := e.laneOf(tag); return l == e.main() || l.over })
		e.mu.Lock()
		stream, l := e.laneOf(tag)
		var got []int
		for _, frame := range l.received {
			if n := numberIn(frame); n/most == i {
				got = append(got, n%most)
			} else if stream != transport.Main {
				e.breaks("stream %d: frame %d of request %d came for request %d", stream, n%most, n/most, i)
			}
		}
		e.mu.Unlock()
		if want := upTo(notifications); !slices.Equal(got, want) {
			e.t.Fatalf("%s: stream %d: frames %v arrived where %v were due", e.name, stream, got, want)
		}
	}
}

func upTo(last int) (all []int) {
	for n := range last + 1 {
		all = append(all, n)
	}
	return all
}

// laneOf returns the stream that a request has opened, or Main. The caller holds
// mu.
func (e *end) laneOf(tag transport.Tag) (transport.Stream, *lane) {
	for stream, l := range e.lanes {
		if stream != transport.Main && l.tag == tag {
			return stream, l
		}
	}
	return transport.Main, e.main()
}

const (
	requestFormat = `{"jsonrpc":"2.0","id":%d,"method":"n","params":{}}`
	answerFormat  = `{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`
)

func request(i int) transport.Outbound {
	return transport.Outbound{
		Tag: transport.Tag(i + 1), Frame: fmt.Appendf(nil, requestFormat, i),
		Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "n", ID: jsonrpc.IntegerID(int64(i))},
	}
}

// answer answers request i with frame number n of its stream.
func answer(i, n int) transport.Outbound {
	return transport.Outbound{
		Last: true, Frame: fmt.Appendf(nil, answerFormat, i, i*most+n),
		Route: transport.Route{Kind: jsonrpc.KindResult, ID: jsonrpc.IntegerID(int64(i))},
	}
}

// numberIn returns the number in a notification or an answer, or -1 for any other
// frame.
func numberIn(frame []byte) int {
	var i, n int
	if _, err := fmt.Sscanf(string(frame), answerFormat, &i, &n); err == nil {
		return n
	}
	return numberOf(frame)
}

func (e *end) Receive(in transport.Inbound) {
	e.event("Receive", func() {
		l := e.lanes[in.Stream]
		switch {
		case in.Err != nil || in.Frame == nil:
			e.breaks("received %+v", in)
			return
		case l == nil:
			e.breaks("a frame came on stream %d, which was not opened", in.Stream)
			return
		case l.closed:
			e.breaks("stream %d: a frame came after its end", in.Stream)
		}
		if l.received = append(l.received, in.Frame); len(l.received) > l.granted {
			e.breaks("stream %d: %d frames delivered against %d credits", in.Stream, len(l.received), l.granted)
		}
		if in.Last && in.Stream != transport.Main {
			l.closed, l.over = true, l.over || l.tag != 0
		}
	})
}

// StreamOpened is told of the stream of a request.
func (e *end) StreamOpened(stream transport.Stream, tag transport.Tag) {
	e.event("StreamOpened", func() {
		if e.lanes[stream] != nil {
			e.breaks("stream %d was opened twice", stream)
			return
		}
		e.lanes[stream] = &lane{tag: tag}
	})
}

// StreamLost has a stream taken up again at once, off the link's goroutine.
func (e *end) StreamLost(loss transport.StreamLoss) {
	e.event("StreamLost", func() {
		l := e.lanes[loss.Stream]
		switch {
		case l == nil:
			e.breaks("stream %d was lost, and not opened: %v", loss.Stream, loss.Reason)
		case l.over:
			e.breaks("stream %d was lost after its end: %v", loss.Stream, loss.Reason)
		case loss.Resumable:
			e.resuming.Go(func() { e.use(func() { e.link.Resume(loss.Stream) }) })
		case loss.Stream == transport.Main:
			e.breaks("stream %d was lost: %v", loss.Stream, loss.Reason)
		default:
			l.closed, l.over = true, true
		}
	})
}

// Failed is told of a frame whose way to the peer has ended, such as the
// connection of a stream, while the link lives on. The stream that the frame has
// opened ends with it.
func (e *end) Failed(f transport.Failure) {
	e.event("Failed", func() {
		if f.Tag == 0 || f.Err == nil {
			e.breaks("a failure without a name or a reason: %+v", f)
		}
		e.failed = append(e.failed, f)
		if stream, l := e.laneOf(f.Tag); stream != transport.Main {
			if l.over {
				e.breaks("stream %d: its request failed after its end: %v", stream, f.Err)
			}
			l.closed, l.over = true, true
		}
	})
}
