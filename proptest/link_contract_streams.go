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
		o := notification(0, frameOf(i*framesPerRequest+sent[i], 64))
		if sent[i] == before[i] {
			o = answer(i, sent[i])
		}
		o.Stream = streams[i]
		p.to.sendOutbound(o)
		sent[i]++
	}
	p.from.receiveAll(len(turns), portions)
	p.from.checkStreams(before)
}

// framesPerRequest is greater than the number of frames of any request in a test.
const framesPerRequest = 100

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
		p.to.sendOutbound(o)
	}
	if rapid.Bool().Draw(rt, "answers are taken first") {
		p.from.receiveAll(answered, []int{1})
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
		p.from.sendOutbound(request(i))
	}
	streams := make([]transport.Stream, n)
	for seen := 0; seen < n; {
		p.to.wait("a request", func(e *endpoint) bool { return len(e.withoutCreditLocked()) > 0 || e.total() == n })
		for _, stream := range p.to.withoutCredit() {
			p.to.grantOn(stream, 1)
		}
		seen = p.to.snapshot(func(e *endpoint) int { return e.total() })
	}
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	for stream, l := range p.to.streams {
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

// receiveAll receives the given number of frames of all streams, and grants credit in
// the given portions.
func (e *endpoint) receiveAll(frames int, portions []int) {
	e.t.Helper()
	for turn := 0; ; {
		e.wait("a frame of a stream", func(e *endpoint) bool { return e.total() >= frames || len(e.withoutCreditLocked()) > 0 })
		if e.snapshot((*endpoint).total) >= frames {
			return
		}
		for _, stream := range e.withoutCredit() {
			e.grantOn(stream, portions[turn%len(portions)])
			turn++
		}
	}
}

// total counts the frames of all streams. The caller holds mu.
func (e *endpoint) total() (n int) {
	for _, l := range e.streams {
		n += len(l.received)
	}
	return n
}

// withoutCreditLocked lists the streams, other than Main, that have no credit left and are not
// closed. The caller holds mu.
func (e *endpoint) withoutCreditLocked() (streams []transport.Stream) {
	for _, stream := range slices.Sorted(maps.Keys(e.streams)) {
		if l := e.streams[stream]; stream != transport.Main && !l.closed && len(l.received) >= l.granted {
			streams = append(streams, stream)
		}
	}
	return streams
}

func (e *endpoint) withoutCredit() []transport.Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.withoutCreditLocked()
}

// checkStreams checks that the notifications of each request, and then its answer,
// arrived in order on one stream, and that this stream has ended.
func (e *endpoint) checkStreams(before []int) {
	e.t.Helper()
	for i, notifications := range before {
		tag := transport.Tag(i + 1)
		e.wait("the end of a stream", func(e *endpoint) bool { _, l := e.streamOf(tag); return l == e.main() || l.ended })
		e.mu.Lock()
		stream, l := e.streamOf(tag)
		var got []int
		for _, frame := range l.received {
			if n := numberIn(frame); n/framesPerRequest == i {
				got = append(got, n%framesPerRequest)
			} else if stream != transport.Main {
				e.violate("stream %d: frame %d of request %d came for request %d", stream, n%framesPerRequest, n/framesPerRequest, i)
			}
		}
		e.mu.Unlock()
		if want := numbersTo(notifications); !slices.Equal(got, want) {
			e.t.Fatalf("%s: stream %d: frames %v arrived instead of %v", e.name, stream, got, want)
		}
	}
}

func numbersTo(last int) (all []int) {
	for n := range last + 1 {
		all = append(all, n)
	}
	return all
}

// streamOf returns the stream that a request has opened, or Main. The caller holds
// mu.
func (e *endpoint) streamOf(tag transport.Tag) (transport.Stream, *streamState) {
	for stream, l := range e.streams {
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
		Last: true, Frame: fmt.Appendf(nil, answerFormat, i, i*framesPerRequest+n),
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

func (e *endpoint) Receive(in transport.Inbound) {
	e.event("Receive", func() {
		l := e.streams[in.Stream]
		switch {
		case in.Err != nil || in.Frame == nil:
			e.violate("received %+v", in)
			return
		case l == nil:
			e.violate("a frame came on stream %d, which was not opened", in.Stream)
			return
		case l.closed:
			e.violate("stream %d: a frame came after its end", in.Stream)
		}
		if l.received = append(l.received, in.Frame); len(l.received) > l.granted {
			e.violate("stream %d: %d frames delivered against %d credits", in.Stream, len(l.received), l.granted)
		}
		if in.Last && in.Stream != transport.Main {
			l.closed, l.ended = true, l.ended || l.tag != 0
		}
	})
}

// StreamOpened records the stream of a request.
func (e *endpoint) StreamOpened(stream transport.Stream, tag transport.Tag) {
	e.event("StreamOpened", func() {
		if e.streams[stream] != nil {
			e.violate("stream %d was opened twice", stream)
			return
		}
		e.streams[stream] = &streamState{tag: tag}
	})
}

// StreamLost resumes a stream immediately, on another goroutine than the link's.
func (e *endpoint) StreamLost(loss transport.StreamLoss) {
	e.event("StreamLost", func() {
		l := e.streams[loss.Stream]
		switch {
		case l == nil:
			e.violate("stream %d was lost, and not opened: %v", loss.Stream, loss.Reason)
		case l.ended:
			e.violate("stream %d was lost after its end: %v", loss.Stream, loss.Reason)
		case loss.Resumable:
			e.resumes.Go(func() { e.withLink(func() { e.link.Resume(loss.Stream) }) })
		case loss.Stream == transport.Main:
			e.violate("stream %d was lost: %v", loss.Stream, loss.Reason)
		default:
			l.closed, l.ended = true, true
		}
	})
}

// Failed records a frame that could not be delivered, for instance because the connection
// of a stream was lost, while the link continues. The stream that the frame has opened ends.
func (e *endpoint) Failed(f transport.Failure) {
	e.event("Failed", func() {
		if f.Tag == 0 || f.Err == nil {
			e.violate("a failure without a tag or a reason: %+v", f)
		}
		e.failed = append(e.failed, f)
		if stream, l := e.streamOf(f.Tag); stream != transport.Main {
			if l.ended {
				e.violate("stream %d: its request failed after its end: %v", stream, f.Err)
			}
			l.closed, l.ended = true, true
		}
	})
}
