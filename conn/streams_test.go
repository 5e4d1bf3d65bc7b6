package conn

import (
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// streamOpened reports a stream of this side's request with that id, or one of the peer if the id is 0.
func (d *driver) streamOpened(number transport.Stream, id int64) {
	d.stepCurrent(event{kind: streamOpened, stream: number, id: id})
}

func (d *driver) streamLost(number transport.Stream) {
	d.stepCurrent(event{kind: streamLost, stream: number, eventExtra: &eventExtra{reason: Reason{StreamLost, transport.ErrPeerClosed}}})
}

func (d *driver) cutStream(number transport.Stream, delay time.Duration) {
	d.stepCurrent(event{kind: streamLost, stream: number, resumable: true, timeout: delay, random: 0.5})
}

// requestOnStream opens a stream of the peer, and lets its only request come in.
func (d *driver) requestOnStream(number transport.Stream, id int64) *Incoming {
	d.streamOpened(number, 0)
	in := &Incoming{Method: "work", key: incomingKey{number, jsonrpc.IntegerID(id)}}
	d.stepCurrent(event{kind: requested, incoming: in, stream: number, frames: 1, last: true})
	return in
}

func (d *driver) answer(in *Incoming) {
	d.step(event{kind: handled, incoming: in})
}

func (d *driver) wantEnded(number transport.Stream) {
	d.t.Helper()
	if fx := d.want(endStream); fx.stream != number {
		d.t.Fatalf("stream %d was ended, want %d", fx.stream, number)
	}
}

func (d *driver) wantGrantOn(number transport.Stream, frames int) {
	d.t.Helper()
	if fx := d.want(grant); fx.stream != number || fx.frames != frames {
		d.t.Fatalf("want %d frames granted on stream %d, got %d on %d", frames, number, fx.frames, fx.stream)
	}
}

// Each stream has its own credit, which counts until the stream has brought its last frame.
//
// Guarantees: G-0019.1
func TestEachStreamHasItsOwnCredit(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{Credit: 3}})
	d.call(1, 0)
	d.wantTransmit(1)
	d.streamOpened(7, 1)
	d.wantGrantOn(7, 3)
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: 7, frames: 1})
	d.want(notify)
	d.wantGrantOn(7, 1)
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
	d.want(notify)
	d.wantGrantOn(transport.Main, 1)
	d.wantCredit(2 * 3)
	d.stepCurrent(event{kind: replied, id: 1, stream: 7, frames: 1, last: true})
	d.wantSettled(1, Answered, Sent)
	d.wantNothing("a stream that has ended gets no credit")
	d.wantCredit(3)
}

// A stream of the peer that has brought all its requests needs no credit while they are served.
func TestACompleteStreamHasNoCredit(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{Credit: 3}})
	d.streamOpened(7, 0)
	d.dropEffects()
	d.wantCredit(2 * 3)
	asked := &Incoming{key: incomingKey{stream: 7, id: jsonrpc.IntegerID(1)}}
	for range 2 { // a link may report twice that it is the last
		d.stepCurrent(event{kind: requested, incoming: asked, stream: 7, frames: 1, last: true})
		d.wantCredit(3)
	}
	d.dropEffects()
	d.streamLost(7)
	d.wantCredit(3)
}

func (d *driver) wantCredit(frames int) {
	d.t.Helper()
	if credit := d.core.streams.credit(d.core.options.Credit); credit != frames {
		d.t.Fatalf("the credit is %d, want %d", credit, frames)
	}
}

// A lost stream settles the request that it belongs to, and no other.
//
// Guarantees: G-0019.2
func TestLostStreamSettlesOnlyItsRequest(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(2) {
		d.call(id+1, 0)
		d.streamOpened(transport.Stream(id+1), id+1)
	}
	d.dropEffects()
	d.streamLost(1)
	if fx := d.wantSettled(1, LinkLost, Unknown); !errors.Is(fx.err, transport.ErrPeerClosed) {
		t.Fatalf("the caller got %v, want ErrPeerClosed", fx.err)
	}
	d.wantNothing("the other request has its own stream")
	d.wantState(Ready)
	d.streamLost(transport.Main)
	d.streamLost(1)
	d.wantNothing("no request belongs to Main, and stream 1 is already lost")
	d.reply(2)
	d.wantSettled(2, Answered, Sent)
}

// If a stream brings its last frame without the answer, its request ends as lost.
//
// Guarantees: G-0019.2
func TestStreamWithoutAnAnswerSettlesItsRequest(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.streamOpened(1, 1)
	d.dropEffects()
	d.stepCurrent(event{kind: replied, id: 99, stream: 1, frames: 1, last: true})
	d.want(unknown)
	d.wantSettled(1, LinkLost, Unknown)
}

// A stream that was cut is resumed after a delay that grows with each cut, or after the delay that
// the peer asks for. Its request stays pending meanwhile.
//
// Guarantees: G-0019.3
func TestCutStreamIsResumed(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{BackoffMin: time.Second}})
	d.call(1, time.Hour)
	d.streamOpened(5, 1)
	d.dropEffects()
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} { // random is in the middle: no jitter
		d.cutStream(5, 0)
		d.wantNothing("the request stays pending")
		if got := d.core.streams.deadline() - d.now; wait == time.Second && got < wait || got > wait+wait/5 {
			t.Fatalf("the stream is resumed after %v, want about %v", got, wait)
		}
		d.advanceToDeadline()
		if fx := d.want(resumeStream); fx.stream != 5 {
			t.Fatalf("stream %d was resumed, want 5", fx.stream)
		}
	}
	d.stepCurrent(event{kind: progressed, id: 1, stream: 5, frames: 1})
	d.dropEffects()
	d.cutStream(5, time.Minute)
	if got := d.core.streams.deadline() - d.now; got != time.Minute {
		t.Fatalf("the peer has asked for 1m, the stream is resumed after %v", got)
	}
	d.streamLost(5)
	d.wantSettled(1, LinkLost, Unknown)
	d.advance(time.Minute)
	d.wantNothing("the stream has ended")
}

// After a stream has brought a frame, the delay before it is resumed begins again at BackoffMin. A
// stream is resumed once, even if it is reported as cut twice, and not after the link is lost.
//
// Guarantees: G-0019.3
func TestCutStreamResetsItsBackoffAfterAFrame(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{BackoffMin: time.Second}})
	for range 3 {
		d.cutStream(transport.Main, 0)
		d.advanceToDeadline()
	}
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
	d.dropEffects()
	d.cutStream(transport.Main, 0)
	d.cutStream(transport.Main, 0) // reported twice
	if got := d.core.streams.deadline() - d.now; got > 2*time.Second {
		t.Fatalf("the stream is resumed after %v, want 2s at most", got)
	}
	d.advanceToDeadline()
	d.want(resumeStream)
	d.wantNothing("it is resumed once")
	d.cutStream(transport.Main, 0)
	d.loseLink()
	if d.core.streams.deadline() != 0 {
		t.Fatalf("a stream of a lost link has a deadline at %v, want none", d.core.streams.deadline())
	}
}

// The stream of a request that timed out is ended, also if it is opened only afterwards.
//
// Guarantees: G-0019.4
func TestAbandonedRequestEndsItsStream(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancellingDialect{}})
	d.call(1, time.Second)
	d.streamOpened(1, 1)
	d.call(2, time.Second)
	d.dropEffects()
	d.advance(time.Second)
	d.wantSettled(1, TimedOut, Unknown)
	d.wantTransmit(0) // the cancellation of the dialect
	d.wantEnded(1)
	d.wantSettled(2, TimedOut, Unknown)
	d.wantTransmit(0)
	d.streamOpened(2, 2) // the request ended before this event
	d.wantEnded(2)
	d.wantNothing("both requests and their streams have ended")
}

// If the frame of a request is not sent, its stream is removed with it.
//
// Guarantees: G-0019.4
func TestFailedRequestRemovesItsStream(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.streamOpened(1, 1)
	d.dropEffects()
	d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 1}, err: errors.New("refused"), unsent: true})
	d.wantSettled(1, Refused, NotSent)
	if len(d.core.streams.others) > 0 {
		t.Fatalf("the streams are %v, want none", d.core.streams.others)
	}
	d.call(2, 0)
	d.wantTransmit(2)
	d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 2}, err: errors.New("reset")})
	d.wantSettled(2, LinkLost, Unknown)
}

// The answer to the only request of a stream is sent as its last frame, and removes the stream.
//
// Guarantees: G-0019.5
func TestLastAnswerEndsItsStream(t *testing.T) {
	d := driveAcceptor(t, Options{})
	in := d.requestOnStream(3, 1)
	d.wantGrantOn(3, 1)
	d.want(serve)
	d.answer(in)
	if out := d.wantReply(); out.stream != 3 || !out.last {
		t.Fatalf("the answer is %+v, want the last frame on stream 3", out)
	}
	d.wantNothing("the stream has ended")
	if len(d.core.streams.others) > 0 {
		t.Fatalf("the streams are %v, want none", d.core.streams.others)
	}
}

// The answers to the messages of a batch go out on its stream, and the one that comes last ends it.
//
// Guarantees: G-0019.5
func TestBatchIsAnsweredOnOneStream(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(3, 0)
	var batch []*Incoming
	for id := range int64(2) {
		in := &Incoming{key: incomingKey{3, jsonrpc.IntegerID(id)}}
		d.stepCurrent(event{kind: requested, incoming: in, stream: 3})
		batch = append(batch, in)
		d.dropEffects()
		if id == 0 {
			d.answer(in) // before the rest of the batch has come
			if d.wantReply().last {
				t.Fatal("the stream was ended before all of its batch had come")
			}
		}
	}
	d.stepCurrent(event{kind: probed, stream: 3, frames: 1, last: true, out: &outboundFrame{stream: 3, reply: true}})
	if d.wantReply().last {
		t.Fatal("the stream was ended before all requests were answered")
	}
	d.answer(batch[1])
	if !d.wantReply().last {
		t.Fatal("the last answer did not end the stream")
	}
}

// A stream on which no answer is due any more is ended: one that brought only a notification, and
// one whose request was cancelled.
//
// Guarantees: G-0019.5
func TestStreamWithoutAnswersDueIsEnded(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(1, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: 1, frames: 1, last: true})
	d.want(notify)
	d.wantEnded(1)
	in := d.requestOnStream(2, 1)
	d.dropEffects()
	d.stepCurrent(event{kind: cancelled, frames: 1, incoming: &Incoming{key: incomingKey{id: in.key.id}}})
	if fx := d.want(cancelServing); fx.incoming != in {
		t.Fatalf("%v was cancelled, want %v", fx.incoming.key, in.key)
	}
	d.wantEnded(2)
	d.dropEffects()
	d.answer(in)
	d.wantNothing("a cancelled request is not answered")
}

// When a stream of the peer is lost, its request is cancelled if it is being served, and dropped if
// it waits. It is not answered.
//
// Guarantees: G-0019.2
func TestLostStreamCancelsItsRequests(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1}})
	served, waiting, other := d.requestOnStream(1, 1), d.requestOnStream(2, 1), d.requestOnStream(3, 1)
	d.dropEffects()
	d.streamLost(1)
	if fx := d.want(cancelServing); fx.incoming != served {
		t.Fatalf("%v was cancelled, want %v", fx.incoming.key, served.key)
	}
	d.streamLost(2)
	d.wantNothing("the request that waited is dropped")
	d.answer(served)
	if fx := d.want(serve); fx.incoming != other || waiting.serving.cancel != nil {
		t.Fatalf("%v is served, want %v", fx.incoming.key, other.key)
	}
	d.wantNothing("no answer is sent on a lost stream")
}

// A cancellation names a request of its own stream, and one on Main a request of any stream.
//
// Guarantees: G-0019.8
func TestCancellationIsOfItsOwnStreamUnlessOnMain(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.requestOnStream(1, 5)
	d.requestOnStream(2, 6)
	d.dropEffects()
	d.stepCurrent(event{kind: cancelled, stream: 2, incoming: &Incoming{key: incomingKey{2, jsonrpc.IntegerID(5)}}})
	d.wantNothing("it names a request of another stream")
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: incomingKey{transport.Main, jsonrpc.IntegerID(5)}}})
	if fx := d.want(cancelServing); fx.incoming.key.stream != 1 {
		t.Fatalf("the request of stream %d was cancelled, want that of stream 1", fx.incoming.key.stream)
	}
}

// A drain ends this side's streaming requests at once, and waits for its other calls.
//
// Guarantees: G-0019.7
func TestDrainEndsOwnStreamingRequestsFirst(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancellingDialect{}})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	d.call(2, 0)
	d.dropEffects()
	d.drain(time.Minute)
	if fx := d.wantSettled(1, ShutDown, Unknown); fx.err != ErrDraining {
		t.Fatalf("the caller got %v, want ErrDraining", fx.err)
	}
	d.wantTransmit(0)
	d.wantNothing("the other request is pending")
	d.drain(time.Second)
	d.wantNothing("the drain has already begun")
	d.wantState(Ready)
}

// The peer may end a streaming request of this side by cancelling it, but no other request.
//
// Guarantees: G-0019.7
func TestPeerMayCancelOwnStreamingRequest(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	d.call(2, 0)
	d.dropEffects()
	d.cancel(2)
	d.wantGrant(1)
	d.cancel(1)
	if fx := d.wantSettled(1, LinkLost, Unknown); !errors.Is(fx.err, ErrPeerCancelled) {
		t.Fatalf("the caller got %v, want ErrPeerCancelled", fx.err)
	}
	d.wantGrant(1)
	d.wantNothing("the other request is not streaming")
}

// A stream is not ended before an answer on it that waits for the link.
//
// Guarantees: G-0019.5
func TestEndOfAStreamDoesNotOvertakeItsAnswer(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamOpened(4, 0)
	in := &Incoming{key: incomingKey{4, jsonrpc.IntegerID(1)}}
	d.stepCurrent(event{kind: requested, incoming: in, stream: 4, frames: 1})
	d.dropEffects()
	d.answer(in)
	d.busy(d.wantReply())
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: 4, frames: 1, last: true})
	d.want(notify)
	d.wantNothing("an answer waits until the link has room")
	d.stepCurrent(event{kind: writable})
	if out := d.wantReply(); !out.last {
		t.Fatal("the answer is not the last frame of its stream")
	}
}

// If the answer to a request comes on another stream, or as a frame that is not the last, the
// request's own stream is ended.
//
// Guarantees: G-0019.4
func TestAnsweredRequestLeavesNoStream(t *testing.T) {
	for name, ev := range map[string]event{
		"elsewhere":           {kind: replied, id: 1, frames: 1},
		"and more might come": {kind: replied, id: 1, frames: 1, stream: 6},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.call(1, 0)
			d.streamOpened(6, 1)
			d.dropEffects()
			d.stepCurrent(ev)
			d.wantSettled(1, Answered, Sent)
			d.wantEnded(6)
		})
	}
}

// driveCongested returns a Conn whose link takes no answers, so that it grants no credit.
func driveCongested(t *testing.T) *driver {
	t.Helper()
	d := driveAcceptor(t, Options{})
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	return d
}

// linkWritable lets the link take the answers, and drops those effects.
func (d *driver) linkWritable() {
	d.dropEffects()
	d.stepCurrent(event{kind: writable})
	d.dropEffectsOf(transmit)
}

// Credit that is withheld from a stream is not granted once the stream is lost, and the stream is
// not kept in memory.
//
// Guarantees: G-0019.1
func TestLostStreamIsOwedNoCredit(t *testing.T) {
	d := driveCongested(t)
	for _, number := range []transport.Stream{1, 2} {
		d.streamOpened(number, 0)
		d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: number, frames: 1})
	}
	d.streamLost(1)
	d.linkWritable()
	d.want(stallEnded)
	d.wantGrantOn(2, 1)
	d.wantNothing("the other stream is lost")
	if throttled := d.core.streams.throttled; throttled[:cap(throttled)][0] != nil {
		t.Fatal("a lost stream is kept in memory")
	}
}

// If the peer asks for a delay, a cut stream is resumed after it. That holds as long as the stream
// brings a message each time, or lasts half a minute; otherwise the delay grows, whatever the peer
// asks for.
//
// Guarantees: G-0019.3, G-0022.4
func TestCutStreamIsResumedWhenThePeerAsks(t *testing.T) {
	const asked = 50 * time.Millisecond
	d := driveReady(t, Options{Tuning: Tuning{BackoffMin: time.Second}})
	cut := func(brought *event, want time.Duration) {
		t.Helper()
		if brought != nil {
			d.stepCurrent(*brought)
			d.dropEffects()
		}
		d.stepCurrent(event{kind: streamLost, resumable: true, timeout: asked, random: 0.5})
		if got := d.core.streams.deadline() - d.now; got != want {
			t.Fatalf("the stream is resumed after %v, want %v", got, want)
		}
		d.advanceToDeadline()
		d.want(resumeStream)
	}
	message := &event{kind: notified, incoming: &Incoming{}, frames: 1}
	cut(nil, asked)
	for range 3 {
		cut(message, asked)
	}
	cut(nil, 1100*time.Millisecond) // drawn from [1 s, 1.2 s]
	cut(nil, 2*time.Second)
	cut(&event{kind: malformed, frames: 1}, 4*time.Second)
	cut(message, asked)
	cut(nil, 1100*time.Millisecond)
	d.now += 30*time.Second - 1
	cut(nil, 2*time.Second)
	d.now += 30 * time.Second
	cut(nil, asked)
	cut(nil, 1100*time.Millisecond)
}

// Main does not end: a frame on it that the link marks as the last one gets credit like any other.
//
// Guarantees: G-0019.1
func TestMainStreamIsNeverComplete(t *testing.T) {
	d := driveReady(t, Options{})
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1, last: true})
	d.want(notify)
	d.wantGrantOn(transport.Main, 1)
}

// Each stream that was cut is resumed at its own time, the earliest first.
//
// Guarantees: G-0019.3
func TestCutStreamsAreResumedWhenEachIsDue(t *testing.T) {
	d := driveReady(t, Options{})
	d.streamOpened(1, 0)
	d.streamOpened(2, 0)
	d.dropEffects()
	d.cutStream(1, 2*time.Minute)
	d.cutStream(2, time.Minute)
	for _, number := range []transport.Stream{2, 1} {
		d.advanceToDeadline()
		if fx := d.want(resumeStream); fx.stream != number {
			t.Fatalf("stream %d was resumed, want %d", fx.stream, number)
		}
		d.wantNothing("the other stream is not due")
	}
	if cut := d.core.streams.cut; cut[:cap(cut)][0] != nil {
		t.Fatal("a resumed stream is kept in memory")
	}
}

// If a stream that waits to be resumed is reported as cut again, the time does not change.
//
// Guarantees: G-0019.3
func TestSecondCutDoesNotDelayTheResumption(t *testing.T) {
	d := driveReady(t, Options{})
	d.cutStream(transport.Main, time.Minute)
	d.cutStream(transport.Main, time.Hour)
	d.advanceToDeadline()
	d.want(resumeStream)
	if d.now != time.Second+time.Minute {
		t.Fatalf("the stream is resumed at %v, want %v", d.now, time.Second+time.Minute)
	}
}

// An answer on another stream, as its last frame, ends both that stream and the request's own.
//
// Guarantees: G-0019.4
func TestAnswerThatEndsAnotherStreamEndsItsOwn(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.streamOpened(6, 1)
	d.streamOpened(7, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: replied, id: 1, frames: 1, stream: 7, last: true})
	d.wantSettled(1, Answered, Sent)
	d.wantEnded(6)
	d.wantEnded(7)
}

// A call of a handler that waits for a busy link is not sent once the handler's stream is lost.
//
// Guarantees: G-0019.6
func TestCallThatWaitsForTheLinkEndsWithItsStream(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.requestOnStream(3, 7)
	d.dropEffects()
	d.calls[1] = new(call)
	out := d.frame(1)
	out.stream = 3
	d.stepCurrent(event{kind: callMade, serving: true, out: returned(out)})
	d.busy(d.wantTransmit(1))
	d.streamLost(3)
	d.want(cancelServing)
	d.wantSettled(1, LinkLost, NotSent)
	d.dropEffects()
	d.stepCurrent(event{kind: writable})
	if d.count(transmit) > 0 {
		t.Error("the call was sent after its stream was lost")
	}
}
