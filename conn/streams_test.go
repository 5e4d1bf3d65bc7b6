package conn

import (
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// streamOpened reports a stream: of our request with that id, or of the peer's.
func (d *driver) streamOpened(number transport.Stream, id int64) {
	d.stepCurrent(event{kind: streamOpened, stream: number, id: id})
}

func (d *driver) streamLost(number transport.Stream) {
	d.stepCurrent(event{kind: streamLost, stream: number, particulars: &particulars{reason: Reason{StreamLost, transport.ErrPeerClosed}}})
}

func (d *driver) cutStream(number transport.Stream, delay time.Duration) {
	d.stepCurrent(event{kind: streamLost, stream: number, resumable: true, timeout: delay, random: 0.5})
}

// requestOnStream opens a stream that the peer has begun, and brings its one request.
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
		d.t.Fatalf("stream %d was ended, not %d", fx.stream, number)
	}
}

func (d *driver) wantGrantOn(number transport.Stream, frames int) {
	d.t.Helper()
	if fx := d.want(grant); fx.stream != number || fx.frames != frames {
		d.t.Fatalf("want %d frames granted on stream %d, got %d on %d", frames, number, fx.frames, fx.stream)
	}
}

// Guarantees: G-0019.1
func TestEachStreamHasCreditOfItsOwn(t *testing.T) {
	d := driveReady(t, Options{Credit: 3})
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
	d.wantNothing("a stream that is over gets no credit")
	d.wantCredit(3)
}

// A stream of the peer's that has brought its requests delivers nothing more, and is no credit
// while they are served.
func TestACompleteStreamHasNoCredit(t *testing.T) {
	d := driveReady(t, Options{Credit: 3})
	d.streamOpened(7, 0)
	d.dropEffects()
	d.wantCredit(2 * 3)
	asked := &Incoming{key: incomingKey{stream: 7, id: jsonrpc.IntegerID(1)}}
	for range 2 { // a link may say twice that it is the last
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

// Guarantees: G-0019.2
func TestLostStreamSettlesItsOwnRequestAlone(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(2) {
		d.call(id+1, 0)
		d.streamOpened(transport.Stream(id+1), id+1)
	}
	d.dropEffects()
	d.streamLost(1)
	if fx := d.wantSettled(1, LinkLost, Unknown); !errors.Is(fx.err, transport.ErrPeerClosed) {
		t.Fatalf("the caller was told: %v", fx.err)
	}
	d.wantNothing("the other request has a stream of its own")
	d.wantState(Ready)
	d.streamLost(transport.Main)
	d.streamLost(1)
	d.wantNothing("nothing belongs to Main, and a stream is lost once")
	d.reply(2)
	d.wantSettled(2, Answered, Sent)
}

// A stream may bring its last frame and no answer.
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

// Guarantees: G-0019.3
func TestCutStreamIsTakenUpAgain(t *testing.T) {
	d := driveReady(t, Options{BackoffMin: time.Second})
	d.call(1, time.Hour)
	d.streamOpened(5, 1)
	d.dropEffects()
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} { // random is in the middle: no jitter
		d.cutStream(5, 0)
		d.wantNothing("the request stays pending")
		if got := d.core.streams.deadline() - d.now; wait == time.Second && got < wait || got > wait+wait/5 {
			t.Fatalf("the stream is taken up after %v, not about %v", got, wait)
		}
		d.advanceToDeadline()
		if fx := d.want(resumeStream); fx.stream != 5 {
			t.Fatalf("stream %d was taken up", fx.stream)
		}
	}
	d.stepCurrent(event{kind: progressed, id: 1, stream: 5, frames: 1})
	d.dropEffects()
	d.cutStream(5, time.Minute)
	if got := d.core.streams.deadline() - d.now; got != time.Minute {
		t.Fatalf("the peer has asked for a minute, the stream is taken up after %v", got)
	}
	d.streamLost(5)
	d.wantSettled(1, LinkLost, Unknown)
	d.advance(time.Minute)
	d.wantNothing("the stream is over")
}

// Guarantees: G-0019.3
func TestCutStreamStartsItsBackoffAnewOnceItHasBroughtSomething(t *testing.T) {
	d := driveReady(t, Options{BackoffMin: time.Second})
	for range 3 {
		d.cutStream(transport.Main, 0)
		d.advanceToDeadline()
	}
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
	d.dropEffects()
	d.cutStream(transport.Main, 0)
	d.cutStream(transport.Main, 0) // said twice, meant once
	if got := d.core.streams.deadline() - d.now; got > 2*time.Second {
		t.Fatalf("the stream is taken up after %v", got)
	}
	d.advanceToDeadline()
	d.want(resumeStream)
	d.wantNothing("it is taken up once")
	d.cutStream(transport.Main, 0)
	d.loseLink()
	if d.core.streams.deadline() != 0 {
		t.Fatal("a stream of a link that is over is to be taken up")
	}
}

// Guarantees: G-0019.4
func TestAbandonedRequestEndsItsStream(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancels{}})
	d.call(1, time.Second)
	d.streamOpened(1, 1)
	d.call(2, time.Second)
	d.dropEffects()
	d.advance(time.Second)
	d.wantSettled(1, TimedOut, Unknown)
	d.wantTransmit(0) // the dialect's word for it
	d.wantEnded(1)
	d.wantSettled(2, TimedOut, Unknown)
	d.wantTransmit(0)
	d.streamOpened(2, 2) // it was on its way when the request ended
	d.wantEnded(2)
	d.wantNothing("")
}

// Guarantees: G-0019.4
func TestFailedRequestTakesItsStreamAlong(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.streamOpened(1, 1)
	d.dropEffects()
	d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 1}, err: errors.New("refused"), unsent: true})
	d.wantSettled(1, Refused, NotSent)
	if len(d.core.streams.others) > 0 {
		t.Fatal("its stream is still there")
	}
	d.call(2, 0)
	d.wantTransmit(2)
	d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 2}, err: errors.New("reset")})
	d.wantSettled(2, LinkLost, Unknown)
}

// Guarantees: G-0019.5
func TestLastAnswerEndsItsStream(t *testing.T) {
	d := driveAcceptor(t, Options{})
	in := d.requestOnStream(3, 1)
	d.wantGrantOn(3, 1)
	d.want(serve)
	d.answer(in)
	if out := d.wantReply(); out.stream != 3 || !out.last {
		t.Fatalf("the answer is %+v", out)
	}
	d.wantNothing("the stream is over")
	if len(d.core.streams.others) > 0 {
		t.Fatal("the stream is still there")
	}
}

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
			d.answer(in) // before the rest of the batch was read
			if d.wantReply().last {
				t.Fatal("the stream was ended with a request of its batch to come")
			}
		}
	}
	d.stepCurrent(event{kind: probed, stream: 3, frames: 1, last: true, out: &outboundFrame{stream: 3, reply: true}})
	if d.wantReply().last {
		t.Fatal("the stream was ended with a request unanswered")
	}
	d.answer(batch[1])
	if !d.wantReply().last {
		t.Fatal("the stream was not ended")
	}
}

// Guarantees: G-0019.5
func TestStreamThatIsOwedNothingIsEnded(t *testing.T) {
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
		t.Fatal("another request was cancelled")
	}
	d.wantEnded(2)
	d.dropEffects()
	d.answer(in)
	d.wantNothing("nobody wants the answer")
}

// Guarantees: G-0019.2
func TestLostStreamCancelsWhatItHasBrought(t *testing.T) {
	d := driveAcceptor(t, Options{MaxServing: 1})
	served, waiting, other := d.requestOnStream(1, 1), d.requestOnStream(2, 1), d.requestOnStream(3, 1)
	d.dropEffects()
	d.streamLost(1)
	if fx := d.want(cancelServing); fx.incoming != served {
		t.Fatal("another request was cancelled")
	}
	d.streamLost(2)
	d.wantNothing("what waits is forgotten")
	d.answer(served)
	if fx := d.want(serve); fx.incoming != other || waiting.serving.cancel != nil {
		t.Fatalf("%v is served", fx.incoming.key)
	}
	d.wantNothing("no answer goes out for a stream that is lost")
}

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
		t.Fatalf("the request of stream %d was cancelled", fx.incoming.key.stream)
	}
}

// Guarantees: G-0019.7
func TestStreamingRequestsOfThePeerAreCountedApart(t *testing.T) {
	d := driveAcceptor(t, Options{MaxServing: 1, MaxStreaming: 1})
	stays := &Incoming{streaming: true, key: incomingKey{id: jsonrpc.IntegerID(1)}}
	d.stepCurrent(event{kind: requested, incoming: stays})
	d.want(serve)
	d.stepCurrent(event{kind: requested, incoming: &Incoming{streaming: true, key: incomingKey{id: jsonrpc.IntegerID(2)}}})
	d.wantReply() // refused
	work := d.request(3)
	d.want(serve)
	d.wantGrant(1)
	d.drain(time.Minute)
	if fx := d.want(cancelServing); fx.incoming != stays || fx.err != ErrDraining {
		t.Fatalf("%v was told %v", fx.incoming.key, fx.err)
	}
	d.answer(stays)
	d.wantReply()
	d.wantNothing("a request is still being served")
	d.answer(work)
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// Guarantees: G-0019.7
func TestStreamingRequestsOfOursEndFirst(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancels{}})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	d.call(2, 0)
	d.dropEffects()
	d.drain(time.Minute)
	if fx := d.wantSettled(1, ShutDown, Unknown); fx.err != ErrDraining {
		t.Fatalf("the caller was told: %v", fx.err)
	}
	d.wantTransmit(0)
	d.wantNothing("the other request is in flight")
	d.drain(time.Second)
	d.wantNothing("draining has begun already")
	d.wantState(Ready)
}

// A peer may end a streaming request of ours by cancelling it, and no other.
//
// Guarantees: G-0019.7
func TestStreamingRequestsOfOursMayBeEndedByThePeer(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	d.call(2, 0)
	d.dropEffects()
	d.cancel(2)
	d.wantGrant(1)
	d.cancel(1)
	if fx := d.wantSettled(1, LinkLost, Unknown); !errors.Is(fx.err, ErrPeerCancelled) {
		t.Fatalf("the caller was told: %v", fx.err)
	}
	d.wantGrant(1)
	d.wantNothing("the other request is not streaming")
}

// The end of a stream does not overtake an answer that waits for it.
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
	d.wantNothing("an answer waits for the link to have room")
	d.stepCurrent(event{kind: writable})
	if out := d.wantReply(); !out.last {
		t.Fatal("the answer does not end its stream")
	}
}

// An answer that came elsewhere, or left its stream open, ends it.
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

// driveCongested returns a Conn whose link takes no answers, so that credit waits.
func driveCongested(t *testing.T) *driver {
	t.Helper()
	d := driveAcceptor(t, Options{})
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	return d
}

// linkWritable lets the link take the answers, and looks past them.
func (d *driver) linkWritable() {
	d.dropEffects()
	d.stepCurrent(event{kind: writable})
	d.dropEffectsOf(transmit)
}

// Guarantees: G-0019.1
func TestStreamThatIsOverIsOwedNoCredit(t *testing.T) {
	d := driveCongested(t)
	for _, number := range []transport.Stream{1, 2} {
		d.streamOpened(number, 0)
		d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: number, frames: 1})
	}
	d.streamLost(1)
	d.linkWritable()
	d.want(stallEnded)
	d.wantGrantOn(2, 1)
	d.wantNothing("the other is over")
	if owed := d.core.streams.owed; owed[:cap(owed)][0] != nil {
		t.Fatal("a stream that is owed nothing is kept alive")
	}
}

// A server that ends its streams on purpose says when to come back. That counts as
// long as it brings something each time.
//
// Guarantees: G-0019.3
func TestCutStreamIsTakenUpWhenThePeerSays(t *testing.T) {
	const asked = 50 * time.Millisecond
	d := driveReady(t, Options{BackoffMin: time.Second})
	cut := func(brought bool, want time.Duration) {
		t.Helper()
		d.stepCurrent(event{kind: streamLost, resumable: true, heard: brought, timeout: asked, random: 0.5})
		if got := d.core.streams.deadline() - d.now; got != want {
			t.Fatalf("the stream is taken up after %v, want %v", got, want)
		}
		d.advanceToDeadline()
		d.want(resumeStream)
	}
	cut(false, asked)
	for range 3 {
		cut(true, asked)
	}
	cut(false, 1100*time.Millisecond) // drawn from [1 s, 1.2 s]
	cut(false, 2*time.Second)
	cut(true, asked)
}

// Main has no end: what a transport calls its last frame is a frame like any.
//
// Guarantees: G-0019.1
func TestMainStreamIsNeverComplete(t *testing.T) {
	d := driveReady(t, Options{})
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1, last: true})
	d.want(notify)
	d.wantGrantOn(transport.Main, 1)
}

// Guarantees: G-0019.3
func TestStreamsAreTakenUpWhenEachIsDue(t *testing.T) {
	d := driveReady(t, Options{})
	d.streamOpened(1, 0)
	d.streamOpened(2, 0)
	d.dropEffects()
	d.cutStream(1, 2*time.Minute)
	d.cutStream(2, time.Minute)
	for _, number := range []transport.Stream{2, 1} {
		d.advanceToDeadline()
		if fx := d.want(resumeStream); fx.stream != number {
			t.Fatalf("stream %d was taken up, want %d", fx.stream, number)
		}
		d.wantNothing("the other is not due")
	}
	if cut := d.core.streams.cut; cut[:cap(cut)][0] != nil {
		t.Fatal("a stream that was taken up is kept alive")
	}
}

// Guarantees: G-0019.3
func TestSecondCutDoesNotPutOffTheResumption(t *testing.T) {
	d := driveReady(t, Options{})
	d.cutStream(transport.Main, time.Minute)
	d.cutStream(transport.Main, time.Hour)
	d.advanceToDeadline()
	d.want(resumeStream)
	if d.now != time.Second+time.Minute {
		t.Fatalf("it is taken up at %v", d.now)
	}
}

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

// A call that a handler has made on a stream, and that the link had no room for, is
// not sent once that stream is over.
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
		t.Error("it was sent all the same")
	}
}
