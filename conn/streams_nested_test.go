package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// nestedRequest has the peer ask something for the sake of our calls on a stream.
func (d *driver) nestedRequest(stream transport.Stream, id int64) *Incoming {
	in := &Incoming{Method: "ask", nested: true, key: incomingKey{stream, jsonrpc.IntegerID(id)}}
	d.stepCurrent(event{kind: requested, incoming: in, stream: stream, frames: 1})
	return in
}

// callWithLimit makes a call of ten seconds, that may be prolonged to a minute.
func (d *driver) callWithLimit(id int64) {
	d.calls[id] = new(call)
	d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: time.Minute, out: returned(d.frame(id))})
}

// Guarantees: G-0003.15
func TestTimeoutStandsStillWhileThePeerIsServed(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.advance(4 * time.Second)
	first := d.nestedRequest(transport.Main, 7)
	d.advance(10 * time.Second)
	second := d.nestedRequest(transport.Main, 8)
	d.advance(10 * time.Second)
	d.handled(first)
	d.advance(10 * time.Second)
	d.handled(second) // 34 s after the call; 6 are left
	d.dropEffects()
	d.advance(6*time.Second - 1)
	d.wantNothing("its time is not over")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.15
func TestLimitHoldsWhileThePeerIsServed(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.dropEffects()
	d.advance(time.Minute - 1)
	d.wantNothing("its limit is not reached")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.15
func TestTimeoutRunsOnAfterACancellation(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.advance(30 * time.Second)
	d.cancel(7)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.15
func TestProgressWhileThePeerIsServed(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: time.Minute, restarts: true, out: returned(d.frame(1))})
	d.advance(9 * time.Second)
	in := d.nestedRequest(transport.Main, 7)
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	d.advance(20 * time.Second)
	d.handled(in)
	d.dropEffects()
	d.advance(10*time.Second - 1)
	d.wantNothing("progress has begun its timeout anew")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// Only calls that the request can be for wait: those of its stream that had
// been sent when it came.
//
// Guarantees: G-0003.15
func TestOtherTimeoutsRunOn(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.stepCurrent(event{kind: streamOpened, stream: 1, id: 1})
	d.callWithLimit(2) // on Main, as it seems
	d.nestedRequest(1, 7)
	d.callWithLimit(3)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(2, TimedOut, Unknown)
	d.wantSettled(3, TimedOut, Unknown)
	d.advance(50 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// A call turns out to have a stream of its own after all.
//
// Guarantees: G-0003.15
func TestTimeoutRunsOnOnceItsStreamIsOpened(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.advance(20 * time.Second)
	d.stepCurrent(event{kind: streamOpened, stream: 1, id: 1})
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// An ordinary request of the peer's has nothing to do with our calls.
//
// Guarantees: G-0003.15
func TestOrdinaryRequestPutsNothingOff(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.request(7)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// Its answer does not end what the peer is served for our call's sake either.
//
// Guarantees: G-0003.15
func TestAnswerToAnOrdinaryRequestResumesNothing(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	nested := d.nestedRequest(transport.Main, 7)
	d.handled(d.request(8))
	d.dropEffects()
	d.advance(30 * time.Second)
	d.wantNothing("the peer is served still")
	d.handled(nested)
	d.dropEffects()
	d.advance(10*time.Second - 1)
	d.wantNothing("its time is not over")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// A call that waits for a busy link cannot be what the peer asks for.
//
// Guarantees: G-0003.15
func TestTimeoutOfWhatWasNotSentRunsOn(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.busy(d.frame(1))
	d.nestedRequest(transport.Main, 7)
	d.dropEffects()
	d.now += 10 * time.Second
	d.step(event{kind: tick, random: 0.5, moved: true})
	d.wantSettled(1, TimedOut, NotSent)
}

// Guarantees: G-0003.15
func TestTimeoutGoesOnNoLongerThanItsLimit(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	in := d.nestedRequest(transport.Main, 7)
	d.advance(55 * time.Second)
	d.handled(in)
	d.dropEffects()
	d.advance(5 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}
