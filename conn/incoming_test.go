package conn

import (
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

func (d *driver) wantRefusal(code int64) {
	d.t.Helper()
	m, err := jsonrpc.Decode(d.wantReply().frame, jsonrpc.Limits{})
	if err != nil || m.Error == nil || m.Error.Code != code {
		d.t.Fatalf("got %+v, %v; want an error with code %d", m, err, code)
	}
}

// Requests beyond MaxServing wait, and those beyond MaxWaiting are refused.
//
// Guarantees: G-0004.4
func TestRequestsAreServedQueuedAndRefused(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 2, MaxWaiting: 1}})
	first, _, third := d.request(1), d.request(2), d.request(3)
	d.request(4)
	d.want(serve)
	d.wantGrant(1)
	d.want(serve)
	d.wantGrant(1)
	d.wantGrant(1)
	d.wantRefusal(jsonrpc.CodeOverloaded)
	d.wantGrant(1)
	d.handled(first)
	d.wantReply()
	if fx := d.want(serve); fx.incoming != third {
		t.Fatalf("%v is served, want %v, which waited", fx.incoming.key, third.key)
	}
}

// Requests that would exceed MaxHeld bytes together are refused, but a single one is always accepted.
//
// Guarantees: G-0004.6
func TestRequestsAreBoundedInBytes(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxHeld: 100, MaxServing: 1}})
	request := func(id int64, size int) *Incoming {
		in := incomingRequest(id)
		in.size = uint32(size)
		d.dropEffects()
		d.stepCurrent(event{kind: requested, incoming: in, frames: 1})
		return in
	}
	huge := request(1, 1000)
	d.want(serve) // a single request may have any size
	request(2, 1)
	d.wantRefusal(jsonrpc.CodeOverloaded)
	d.handled(huge)
	served := request(3, 40)
	d.want(serve)
	request(4, 40) // waits
	request(5, 40)
	d.wantRefusal(jsonrpc.CodeOverloaded)
	d.cancel(4)
	waiting := request(6, 60)
	d.wantGrant(1)
	d.handled(served)
	d.wantReply()
	if fx := d.want(serve); fx.incoming != waiting {
		t.Fatalf("%v is served, want %v, which waited", fx.incoming.key, waiting.key)
	}
	d.handled(waiting)
	if d.core.incoming.bytes != 0 {
		t.Fatalf("%d bytes are counted without a request, want 0", d.core.incoming.bytes)
	}
}

// Requests that come after an exclusive one are served only when it has ended, in their order.
//
// Guarantees: G-0003.11
func TestExclusiveRequestHoldsThoseBehindIt(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 2}})
	ahead := d.request(1)
	opening := &Incoming{key: incomingKey{id: jsonrpc.IntegerID(2)}, exclusive: true}
	d.stepCurrent(event{kind: requested, frames: 1, incoming: opening})
	d.dropEffects()
	behind := []*Incoming{d.request(3), d.request(4), d.request(5)}
	d.handled(ahead)
	if d.count(serve) != 0 {
		t.Fatal("a request is served before the exclusive one ahead of it has ended")
	}
	d.dropEffects()
	d.handled(opening)
	d.wantReply()
	for _, next := range behind[:2] {
		if fx := d.want(serve); fx.incoming != next {
			t.Fatalf("%v is served, want %v", fx.incoming.key, next.key)
		}
	}
	d.wantNothing("no more than two are served at once")
}

// When the handler of a cancelled exclusive request returns, the next requests are served.
//
// Guarantees: G-0003.11
func TestCancelledExclusiveRequestLetsOthersIn(t *testing.T) {
	d := driveReady(t, Options{})
	opening := &Incoming{key: incomingKey{id: jsonrpc.IntegerID(1)}, exclusive: true}
	d.stepCurrent(event{kind: requested, frames: 1, incoming: opening})
	behind := d.request(2)
	d.cancel(1)
	d.dropEffects()
	d.handled(opening)
	if fx := d.want(serve); fx.incoming != behind {
		t.Fatalf("%v is served, want %v, which waited", fx.incoming.key, behind.key)
	}
}

// A request with the id of one that is served or waits is refused.
//
// Guarantees: G-0003.10
func TestRequestWithAnIDInUseIsRefused(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	d.request(1)
	d.request(2)
	d.dropEffects()
	for _, id := range []int64{1, 2} {
		d.request(id)
		d.wantRefusal(jsonrpc.CodeInvalidRequest)
		d.wantGrant(1)
	}
}

// A cancelled request is not answered. If it waited, its handler is not called.
//
// Guarantees: G-0003.10
func TestCancelledRequestIsNotAnswered(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.request(1)
	d.request(2)
	d.dropEffects()
	d.cancel(2)
	d.wantGrant(1)
	d.cancel(1)
	if fx := d.want(cancelServing); fx.incoming != first || !errors.Is(fx.err, ErrPeerCancelled) {
		t.Fatalf("got %+v, want request 1 cancelled with ErrPeerCancelled", fx)
	}
	d.wantGrant(1)
	d.cancel(1)
	d.wantGrant(1)
	d.handled(first)
	d.wantNothing("request 1 is not answered, and 2 is not served")
	if n := d.core.incoming.len(); n != 0 {
		t.Fatalf("%d requests are left, want none", n)
	}
}

// A cancelled request keeps its place among MaxServing until its handler returns.
func TestCancelledRequestHoldsItsPlace(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.request(1)
	d.cancel(1)
	second := d.request(1)
	d.want(serve)
	d.dropEffects()
	d.handled(first)
	if fx := d.want(serve); fx.incoming != second {
		t.Fatalf("%v is served, want the second request", fx.incoming.key)
	}
	d.handled(second)
	d.wantReply()
}

// The answer to a request of an earlier incarnation is not sent.
//
// Guarantees: G-0001.6, G-0003.10
func TestAnswerOfAnOldIncarnationIsNotSent(t *testing.T) {
	d := driveReady(t, Options{})
	old := d.request(1)
	d.loseLink()
	d.linkGone()
	d.advanceToDeadline()
	d.open()
	d.handshaken()
	d.request(1)
	d.dropEffects()
	d.handled(old)
	d.wantNothing("the link of that request is lost")
}

// 10000 malformed frames in a row lose the link. A valid frame resets the count.
//
// Guarantees: G-0001.12
func TestTenThousandMalformedFramesLoseTheLink(t *testing.T) {
	bad := event{kind: malformed, frames: 1, size: 100, err: errors.New("bad")}
	d := driveReady(t, Options{})
	for range 9999 {
		d.stepCurrent(bad)
	}
	d.stepCurrent(event{kind: notified, frames: 1, incoming: &Incoming{}})
	for range 9999 {
		d.stepCurrent(bad)
	}
	d.wantState(Ready)
	d.dropEffects()
	d.stepCurrent(bad)
	d.want(violation)
	d.wantTransition(Backoff, Malformed)
}

// 16 MiB of malformed frames in a row lose the link. A valid frame resets the count.
//
// Guarantees: G-0001.12
func TestSixteenMebibytesOfMalformedFramesLoseTheLink(t *testing.T) {
	bad := event{kind: malformed, frames: 1, size: 4 << 20, err: errors.New("bad")}
	d := driveReady(t, Options{})
	for range 3 {
		d.stepCurrent(bad)
	}
	d.stepCurrent(event{kind: notified, frames: 1, incoming: &Incoming{}})
	for range 3 {
		d.stepCurrent(bad)
	}
	d.stepCurrent(event{kind: malformed, frames: 1, size: 4<<20 - 1, err: errors.New("bad")})
	d.wantState(Ready)
	d.stepCurrent(event{kind: malformed, frames: 1, size: 1, err: errors.New("bad")})
	d.wantState(Backoff)
}

// A malformed frame from which the id can be read is answered with an error.
func TestMalformedRequestIsAnswered(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.stepCurrent(event{kind: malformed, frames: 1, err: errors.New("bad"), out: &outboundFrame{reply: true, frame: []byte("{}")}})
	d.want(violation)
	d.wantReply()
	d.wantGrant(1)
}

// Each frame that comes in, of any kind, gives the peer credit for one more. A batch is one frame.
//
// Guarantees: G-0004.1
func TestCreditComesBackFrameByFrame(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{Credit: 3}})
	d.loseLink()
	d.linkGone()
	d.wake()
	d.open()
	d.dropEffects()
	for _, ev := range []event{
		{kind: replied, id: 9}, {kind: notified, incoming: &Incoming{}}, {kind: progressed}, {kind: cancelled, incoming: incomingRequest(1)},
		{kind: requested, incoming: incomingRequest(2)}, {kind: probed, out: new(outboundFrame)}, {kind: malformed, err: errors.New("bad")},
	} {
		ev.frames = 1
		d.stepCurrent(ev)
		if n := d.count(grant); n != 1 {
			t.Fatalf("%d grants for one frame of kind %d, want 1", n, ev.kind)
		}
		d.dropEffects()
	}
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}}) // not the last of its batch
	if d.count(grant) != 0 {
		t.Fatal("a message that is not the last of its batch was granted credit")
	}
}

// While many replies wait for the link, the peer gets no credit. It gets all of it when they are sent.
//
// Guarantees: G-0004.2
func TestCreditIsWithheldWhileRepliesWait(t *testing.T) {
	d := driveReady(t, Options{})
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	d.request(1)
	d.request(2)
	if d.count(grant) != 0 {
		t.Fatalf("%d grants for a peer that does not read, want none", d.count(grant))
	}
	d.dropEffects()
	d.stepCurrent(event{kind: writable})
	if n := d.count(transmit); n != repliesHigh {
		t.Fatalf("%d replies were offered, want %d", n, repliesHigh)
	}
	d.dropEffectsOf(transmit)
	d.want(stallEnded)
	d.wantGrant(2)
}

// Credit that was withheld on a lost link is not granted on the next one.
//
// Guarantees: G-0004.3
func TestWithheldCreditEndsWithItsLink(t *testing.T) {
	d := driveReady(t, Options{})
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	d.request(1)
	d.loseLink()
	d.linkGone()
	d.wake()
	d.dropEffects()
	d.open()
	d.want(transitioned)
	d.want(bind)
	d.wantGrant(1)
	d.want(handshake)
	d.wantNothing("the credit of the old link is gone")
}

// A drain refuses new work, and closes the Conn when calls and requests have ended.
//
// Guarantees: G-0009.6
func TestDrainClosesWhenIdle(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	in := d.request(2)
	d.drain(time.Minute)
	d.dropEffects()
	d.call(3, 0)
	if fx := d.wantSettled(3, Refused, NotSent); !errors.Is(fx.err, ErrDraining) {
		t.Fatalf("the error is %v, want ErrDraining", fx.err)
	}
	d.request(4)
	d.wantRefusal(jsonrpc.CodeOverloaded)
	d.wantGrant(1)
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
	d.wantGrant(1)
	d.handled(in)
	d.wantReply()
	d.wantNothing("the link may still refuse that reply")
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
	d.want(endTasks)
	if fx := d.want(closeLink); fx.at != 5*time.Second {
		t.Fatalf("the link has %v to close, want 5s", fx.at)
	}
}

// If the link is busy when the last reply of a drain is offered, the drain waits until it is sent.
//
// Guarantees: G-0009.6
func TestDrainWaitsForABusyLink(t *testing.T) {
	d := driveReady(t, Options{})
	in := d.request(1)
	d.drain(time.Minute)
	d.dropEffects()
	d.handled(in)
	d.busy(d.wantReply())
	d.wantNothing("the reply waits")
	d.wantState(Ready)
	d.stepCurrent(event{kind: writable})
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// A drain ends at the earliest deadline that was given, even if calls are pending.
//
// Guarantees: G-0009.7
func TestDrainEndsAtItsDeadline(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.drain(time.Minute)
	d.drain(3 * time.Second)
	d.drain(time.Hour)
	d.dropEffects()
	d.advanceToDeadline()
	if d.now != 4*time.Second {
		t.Fatalf("the drain ended at %v, want 4s", d.now)
	}
	d.wantTransition(Closing, Drained)
	d.want(endTasks)
	d.wantSettled(1, ShutDown, Unknown)
}

// A link that is closing after a drain keeps its grace when Close is called again. Stop shortens it.
//
// Guarantees: G-0009.7
func TestOnlyStopShortensAClosingLinksGrace(t *testing.T) {
	d := driveReady(t, Options{})
	d.drain(time.Minute)
	d.dropEffects()
	d.drain(time.Minute)
	d.wantNothing("it is already closing")
	d.stop()
	if fx := d.want(closeLink); fx.at != 100*time.Millisecond {
		t.Fatalf("the link has %v to close, want 100ms", fx.at)
	}
	d.stop()
	d.wantNothing("it is already stopping")
}

// During a drain, handlers may still make calls.
//
// Guarantees: G-0009.6
func TestHandlersMayMakeCallsWhileDraining(t *testing.T) {
	d := driveReady(t, Options{})
	d.request(1)
	d.drain(time.Minute)
	d.dropEffects()
	d.stepCurrent(event{kind: callMade, serving: true, out: &outboundFrame{id: 1}})
	d.wantTransmit(1)
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// When the input of an acceptor ends, it finishes the requests that it serves. Its own calls end as
// lost, since no answer can come, and new ones are refused.
//
// Guarantees: G-0009.8
func TestAcceptorFinishesWhatItServesAtTheEndOfInput(t *testing.T) {
	d := driveAcceptor(t, Options{})
	in := d.request(1)
	d.call(1, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: linkEnded})
	d.wantSettled(1, LinkLost, Unknown)
	d.stepCurrent(event{kind: callMade, serving: true, out: &outboundFrame{id: 2}})
	d.wantSettled(2, Refused, NotSent)
	d.stepCurrent(event{kind: notificationMade, serving: true, out: &outboundFrame{notification: true}})
	d.wantTransmit(0)
	d.handled(in)
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// After the end of its input, an acceptor waits for its handlers for at most DrainGrace.
//
// Guarantees: G-0009.8
func TestAcceptorClosesInTimeAfterTheEndOfInput(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.request(1)
	d.stepCurrent(event{kind: linkEnded})
	d.dropEffects()
	d.advanceToDeadline()
	if d.now != 6*time.Second {
		t.Fatalf("it closed at %v, want 6s", d.now)
	}
	d.wantTransition(Closing, Drained)
}

// cancelOnMain cancels the request with that id, on whichever stream it came.
func (d *driver) cancelOnMain(id int64) {
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: incomingKey{transport.Main, jsonrpc.IntegerID(id)}}})
}

// A cancellation on Main names the earliest request with its id, whether that is served or waits.
//
// Guarantees: G-0019.8
func TestCancellationOnMainNamesTheEarliestRequest(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 2}})
	d.requestOnStream(3, 5)
	earliest := d.requestOnStream(2, 5)
	d.requestOnStream(5, 6)
	waiting := d.requestOnStream(4, 7)
	d.dropEffects()
	d.cancelOnMain(8)
	d.wantNothing("no request has this id")
	d.cancelOnMain(5)
	if fx := d.want(cancelServing); fx.incoming != earliest {
		t.Fatalf("the request of stream %d was cancelled, want that of stream 2", fx.incoming.key.stream)
	}
	d.wantEnded(2)
	d.cancelOnMain(7)
	d.wantEnded(4)
	if len(d.core.incoming.waiting) != 1 || d.core.incoming.waiting[0].Incoming == waiting {
		t.Fatal("the cancelled request still waits")
	}
}

// If a request of the peer has the same id as a streaming one of this side, a cancellation of the
// peer names its own.
//
// Guarantees: G-0019.7
func TestCancellationNamesThePeersOwnRequestFirst(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	d.request(1)
	d.dropEffects()
	d.cancel(1)
	d.want(cancelServing)
	d.wantGrant(1)
	d.wantNothing("this side's request is not cancelled")
}

// incoming.all yields each request that is served or waits once, and stops when its caller does.
func TestAllIncomingRequestsAreYieldedOnce(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 2}})
	want := map[*Incoming]bool{}
	for id := range int64(4) {
		want[d.request(id+1)] = true
	}
	for stop := range len(want) {
		seen := map[*Incoming]bool{}
		for request := range d.core.incoming.all() {
			if seen[request] = true; len(seen) > stop {
				break
			}
		}
		if len(seen) != stop+1 {
			t.Fatalf("%d requests were yielded, want %d", len(seen), stop+1)
		}
	}
}

// The id of a request that was cancelled while it waited, or has been answered, may be used again.
//
// Guarantees: G-0003.10
func TestTheIDOfARequestThatWaitedIsFreeAgain(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.request(1)
	d.request(2)
	d.cancel(2)
	d.dropEffects()
	again := d.request(2)
	if n := d.count(transmit); n != 0 {
		t.Fatal("a request with the id of a cancelled one is refused")
	}
	d.handled(first)
	d.handled(again)
	d.dropEffects()
	d.request(2)
	d.want(serve)
}

// If several requests that wait have the id of a cancellation on Main, it names the earliest.
//
// Guarantees: G-0019.8
func TestEarliestWaitingRequestIsCancelled(t *testing.T) {
	var in incoming
	for _, stream := range []transport.Stream{3, 9} {
		in.queue(&Incoming{key: incomingKey{stream, jsonrpc.IntegerID(5)}}, 0)
	}
	if named, ok := in.named(incomingKey{transport.Main, jsonrpc.IntegerID(5)}); !ok || named.key.stream != 3 {
		t.Fatalf("got the request of stream %d, want that of stream 3", named.key.stream)
	}
}

// Streaming requests of the peer have their own limit, and do not take places of other requests. A
// drain cancels them and waits for the others.
//
// Guarantees: G-0019.7
func TestStreamingRequestsOfThePeerAreCountedSeparately(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1, MaxStreaming: 1}})
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
		t.Fatalf("%v was cancelled with %v, want %v with ErrDraining", fx.incoming.key, fx.err, stays.key)
	}
	d.answer(stays)
	d.wantReply()
	d.wantNothing("a request is still being served")
	d.answer(work)
	d.wantReply()
	d.advanceToDeadline()
	d.wantNothing("further requests may be on their way")
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// An acceptor without work refuses requests until none has come for a while, but not without end. At
// the deadline of a drain, it refuses the requests that wait.
//
// Guarantees: G-0009.12
func TestDrainRefusesWhatMayBeOnItsWay(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.advance(time.Second)
	d.answer(d.request(1))
	d.dropEffects()
	d.advance(refuseQuiet / 2)
	d.drain(time.Minute)
	d.wantNothing("a request came a short time ago")
	const often = refuseQuiet / 4
	for end := d.now + longestRefusing; d.now+often < end; {
		d.advance(often)
		d.request(2)
		d.wantRefusal(jsonrpc.CodeOverloaded)
		d.wantGrant(1)
		d.wantNothing("further requests may be on their way")
	}
	d.advance(often)
	d.wantTransition(Closing, Drained)

	short := driveAcceptor(t, Options{})
	short.answer(short.request(1))
	short.dropEffects()
	short.drain(time.Second)
	for range 4 { // half of the time for the drain
		short.wantState(Ready)
		short.advance(time.Second / 8)
		short.request(2)
	}
	short.wantState(Closing)

	unused := drive(t, acceptor, Options{})
	unused.now = refuseQuiet / 2
	unused.start()
	unused.dropEffects()
	unused.drain(time.Minute)
	unused.wantTransition(Closing, Drained)

	quiet := driveAcceptor(t, Options{})
	quiet.advance(time.Second)
	quiet.answer(quiet.request(1))
	quiet.dropEffects()
	quiet.advance(refuseQuiet)
	quiet.drain(time.Minute)
	quiet.wantTransition(Closing, Drained)

	cut := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1}})
	cut.request(1)
	cut.request(2)
	cut.dropEffects()
	cut.drain(time.Second)
	cut.wantNothing("requests are being served, and wait")
	cut.advance(time.Second)
	cut.wantRefusal(jsonrpc.CodeOverloaded)
	cut.wantTransition(Closing, Drained)
}

// An Auditor is told of requests that end without their handler: refused, or of an incarnation
// that has ended.
//
// Guarantees: G-0071.1
func TestAuditorIsToldOfRequestsThatAreNotServed(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1, MaxWaiting: 1}})
	d.core.audits = true
	d.request(1)
	d.request(2)
	d.dropEffects()
	refused := d.request(3)
	if fx := d.want(unserved); fx.incoming != refused {
		t.Fatalf("the Auditor was told of %v, want the request that was refused", fx.incoming)
	}
	d.wantRefusal(jsonrpc.CodeOverloaded)
	d.dropEffects()
	for _, of := range []*batch{nil, {due: 2}} {
		late := incomingRequest(4)
		d.step(event{kind: requested, incoming: late, epoch: d.core.epoch - 1, batch: of})
		if fx := d.want(unserved); fx.incoming != late {
			t.Fatalf("the Auditor was told of %v, want the request of an earlier incarnation", fx.incoming)
		}
	}
}

// Streaming requests of the peer that wait for an exclusive one count as if they were served.
//
// Guarantees: G-0019.7
func TestStreamingRequestsThatWaitAreCounted(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxStreaming: 2}})
	exclusive := &Incoming{exclusive: true, key: incomingKey{id: jsonrpc.IntegerID(1)}}
	d.stepCurrent(event{kind: requested, incoming: exclusive})
	d.want(serve)
	streaming := func(id int64) *Incoming {
		in := &Incoming{streaming: true, key: incomingKey{id: jsonrpc.IntegerID(id)}}
		d.stepCurrent(event{kind: requested, incoming: in})
		return in
	}
	streaming(2)
	gone := streaming(3)
	d.wantNothing("two wait")
	streaming(4)
	d.wantReply() // refused
	d.stepCurrent(event{kind: cancelled, incoming: &Incoming{key: gone.key}})
	streaming(5)
	d.wantNothing("one was cancelled")
	d.answer(exclusive)
	d.wantReply()
	d.want(serve)
	d.want(serve)
	streaming(6)
	d.wantReply() // refused
}
