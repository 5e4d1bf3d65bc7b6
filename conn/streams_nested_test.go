package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// nestedRequest lets a request come in that the peer sends for one of this side's calls on a stream.
func (d *driver) nestedRequest(stream transport.Stream, id int64) *Incoming {
	in := &Incoming{Method: "ask", nested: true, key: incomingKey{stream, jsonrpc.IntegerID(id)}}
	d.stepCurrent(event{kind: requested, incoming: in, stream: stream, frames: 1})
	return in
}

// callWithLimit makes a call with a timeout of ten seconds, which may grow to a minute in all.
func (d *driver) callWithLimit(id int64) {
	d.calls[id] = new(call)
	d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: time.Minute, out: returned(d.frame(id))})
}

// While this side serves nested requests of the peer, the timeout of the call does not run.
//
// Guarantees: G-0003.15
func TestTimeoutIsSuspendedWhileThePeerIsServed(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.advance(4 * time.Second)
	first := d.nestedRequest(transport.Main, 7)
	d.advance(10 * time.Second)
	second := d.nestedRequest(transport.Main, 8)
	d.advance(10 * time.Second)
	d.handled(first)
	d.advance(10 * time.Second)
	d.handled(second) // 34 s after the call; 6 s are left
	d.dropEffects()
	d.advance(6*time.Second - 1)
	d.wantNothing("its time has not passed")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// Even while nested requests are served, a call ends at its limit.
//
// Guarantees: G-0003.15
func TestLimitHoldsWhileThePeerIsServed(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.dropEffects()
	d.advance(time.Minute - 1)
	d.wantNothing("its limit has not been reached")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// When the peer cancels its nested request, the timeout of the call runs again.
//
// Guarantees: G-0003.15
func TestTimeoutResumesAfterACancellation(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.advance(30 * time.Second)
	d.cancel(7)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// Progress that comes while a nested request is served gives the call its full timeout afterwards.
//
// Guarantees: G-0003.15
func TestProgressWhileThePeerIsServedRestartsTheTimeout(t *testing.T) {
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
	d.wantNothing("progress has restarted its timeout")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// A nested request suspends only the timeouts of calls that were sent before it on its stream.
//
// Guarantees: G-0003.15
func TestOtherTimeoutsAreNotSuspended(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.stepCurrent(event{kind: streamOpened, stream: 1, id: 1})
	d.callWithLimit(2) // on Main, because no stream was opened for it
	d.nestedRequest(1, 7)
	d.callWithLimit(3)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(2, TimedOut, Unknown)
	d.wantSettled(3, TimedOut, Unknown)
	d.advance(50 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// If a stream is opened for a call, a nested request on Main no longer suspends its timeout.
//
// Guarantees: G-0003.15
func TestTimeoutResumesOnceItsStreamIsOpened(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.nestedRequest(transport.Main, 7)
	d.advance(20 * time.Second)
	d.stepCurrent(event{kind: streamOpened, stream: 1, id: 1})
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// A request of the peer that is not nested suspends no timeout.
//
// Guarantees: G-0003.15
func TestOrdinaryRequestSuspendsNoTimeout(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.request(7)
	d.dropEffects()
	d.advance(10 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}

// The answer to a request that is not nested resumes no timeout.
//
// Guarantees: G-0003.15
func TestAnswerToAnOrdinaryRequestResumesNothing(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	nested := d.nestedRequest(transport.Main, 7)
	d.handled(d.request(8))
	d.dropEffects()
	d.advance(30 * time.Second)
	d.wantNothing("the nested request is still being served")
	d.handled(nested)
	d.dropEffects()
	d.advance(10*time.Second - 1)
	d.wantNothing("its time has not passed")
	d.advance(1)
	d.wantSettled(1, TimedOut, Unknown)
}

// A nested request does not suspend the timeout of a call that has not been sent.
//
// Guarantees: G-0003.15
func TestTimeoutOfAnUnsentCallIsNotSuspended(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	d.busy(d.frame(1))
	d.nestedRequest(transport.Main, 7)
	d.dropEffects()
	d.now += 10 * time.Second
	d.step(event{kind: tick, random: 0.5, moved: true})
	d.wantSettled(1, TimedOut, NotSent)
}

// A timeout that resumes after a nested request still ends at the limit of the call.
//
// Guarantees: G-0003.15
func TestResumedTimeoutEndsAtItsLimit(t *testing.T) {
	d := driveReady(t, Options{})
	d.callWithLimit(1)
	in := d.nestedRequest(transport.Main, 7)
	d.advance(55 * time.Second)
	d.handled(in)
	d.dropEffects()
	d.advance(5 * time.Second)
	d.wantSettled(1, TimedOut, Unknown)
}
