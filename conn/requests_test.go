package conn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Each way in which a request can end settles it once, with its cause and delivery.
//
// Guarantees: G-0003.1, G-0003.2
func TestEveryEndOfARequest(t *testing.T) {
	gone := errors.New("caller gone")
	for name, c := range map[string]struct {
		end      func(*driver) // request 1 has been given to the link
		cause    Cause
		delivery Delivery
	}{
		"answered":           {func(d *driver) { d.reply(1) }, Answered, Sent},
		"peer error":         {func(d *driver) { d.stepCurrent(event{kind: replied, id: 1, frames: 1, fault: &jsonrpc.Error{Code: 1}}) }, PeerError, Sent},
		"cancelled":          {func(d *driver) { d.step(event{kind: callLeft, id: 1, err: gone}) }, Cancelled, Unknown},
		"context's deadline": {func(d *driver) { d.step(event{kind: callLeft, id: 1, timeout: -1, err: gone}) }, TimedOut, Unknown},
		"timed out":          {func(d *driver) { d.advance(30 * time.Second) }, TimedOut, Unknown},
		"link lost":          {func(d *driver) { d.loseLink() }, LinkLost, Unknown},
		"link lost, unsent":  {func(d *driver) { d.loseLink(1) }, LinkLost, NotSent},
		"failed, unsent": {func(d *driver) {
			d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 1}, unsent: true, err: gone})
		}, Refused, NotSent},
		"failed on its way": {func(d *driver) { d.stepCurrent(event{kind: failed, out: &outboundFrame{id: 1}, err: gone}) }, LinkLost, Unknown},
		"link closed": {func(d *driver) {
			d.stepCurrent(event{kind: failed, out: returned(d.frame(1)), unsent: true, err: transport.ErrClosed})
		}, LinkLost, NotSent},
		"shut down": {func(d *driver) { d.stop() }, ShutDown, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.call(1, 30*time.Second)
			d.wantTransmit(1)
			c.end(d)
			if d.effects[0].kind == transitioned {
				d.want(transitioned)
				d.want(endTasks)
			}
			d.wantSettled(1, c.cause, c.delivery)
			if d.core.pending.len() != 0 || d.count(settle) != 0 {
				t.Fatalf("%d requests are pending, %d further ones were settled; want none",
					d.core.pending.len(), d.count(settle))
			}
		})
	}
}

// A request that ends while it waits for a busy link is settled as NotSent, is not sent later, and
// leaves no tombstone.
//
// Guarantees: G-0003.2, G-0007.3
func TestRequestThatWaitedForTheLinkIsNotSent(t *testing.T) {
	gone := errors.New("caller gone")
	for name, c := range map[string]struct {
		end   func(*driver) // request 1 waits for a busy link
		cause Cause
	}{
		"cancelled": {func(d *driver) { d.step(event{kind: callLeft, id: 1, err: gone}) }, Cancelled},
		"timed out": {func(d *driver) { d.advance(30 * time.Second) }, TimedOut},
		"link lost": {func(d *driver) { d.loseLink() }, LinkLost},
		"shut down": {func(d *driver) { d.stop() }, ShutDown},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.call(1, time.Millisecond)
			d.busy(d.wantTransmit(1))
			c.end(d)
			if d.effects[0].kind == transitioned {
				d.want(transitioned)
				d.want(endTasks)
			}
			d.wantSettled(1, c.cause, NotSent)
			if n := d.count(transmit); n != 0 || !d.core.outbound.empty() {
				t.Fatalf("%d frames were sent, queue empty %v; want none, true", n, d.core.outbound.empty())
			}
			if d.core.tombstones.len() != 0 {
				t.Fatalf("%d tombstones, want none, since no reply can come", d.core.tombstones.len())
			}
		})
	}
}

// Calls and notifications are refused in every state but Ready, with an error that names the state.
//
// Guarantees: G-0003.5
func TestCallsAreRefusedOutsideReady(t *testing.T) {
	for name, c := range map[string]struct {
		reach func(*driver)
		cause Cause
	}{
		"starting":     {func(d *driver) { d.start() }, Refused},
		"initializing": {func(d *driver) { d.start(); d.open() }, Refused},
		"backoff":      {func(d *driver) { d.start(); d.open(); d.loseLink() }, Refused},
		"closing":      {func(d *driver) { d.start(); d.stop() }, ShutDown},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, initiator, Options{})
			c.reach(d)
			d.dropEffects()
			d.call(1, 0)
			fx := d.wantSettled(1, c.cause, NotSent)
			var state *StateError
			if c.cause == Refused && (!errors.As(fx.err, &state) || state.State != d.core.state()) {
				t.Fatalf("the error is %v, want a StateError with %s", fx.err, d.core.state())
			}
			d.sendNotification()
			d.wantSettled(0, c.cause, NotSent)
			d.wantNothing("neither is sent")
		})
	}
}

// The handshake may make calls before the Conn is ready.
func TestHandshakeCallsBeforeReady(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	d.open()
	d.dropEffects()
	d.stepCurrent(event{kind: callMade, handshake: true, out: &outboundFrame{id: 1}})
	d.wantTransmit(1)
	d.handshaken()
	d.dropEffects()
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// A call of an earlier incarnation is refused with ErrStale.
//
// Guarantees: G-0003.4
func TestCallOfAnOldIncarnationIsRefused(t *testing.T) {
	d := driveReady(t, Options{})
	d.step(event{kind: callMade, epoch: d.core.epoch - 1, out: &outboundFrame{id: 1}})
	if fx := d.wantSettled(1, Refused, NotSent); !errors.Is(fx.err, ErrStale) {
		t.Fatalf("the error is %v, want ErrStale", fx.err)
	}
}

// A call with the id of a pending one is refused, and the pending one still gets its answer.
//
// Guarantees: G-0003.1
func TestCallWithAnIDInUseIsRefused(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.wantTransmit(1)
	first := d.calls[1]
	d.call(1, 0)
	if fx := d.wantSettled(1, Refused, NotSent); !errors.Is(fx.err, errIDInUse) {
		t.Fatalf("the error is %v, want errIDInUse", fx.err)
	}
	d.calls[1] = first
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// A loss settles all calls in the order of their ids, those that were not sent as NotSent. Before that it cancels the handlers.
//
// Guarantees: G-0003.3, G-0003.18
func TestLossSettlesInTheOrderOfTheCalls(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(50) {
		d.call(id+1, 0)
	}
	d.dropEffects()
	d.loseLink(7, 9)
	d.wantTransition(Backoff, LinkBroken)
	d.want(endTasks)
	for id := range int64(50) {
		want := Unknown
		if id+1 == 7 || id+1 == 9 {
			want = NotSent
		}
		d.wantSettled(id+1, LinkLost, want)
	}
	d.want(closeLink)
}

// An answer to a call that still waits for the link does not end it: the peer has guessed the id.
//
// Guarantees: G-0003.6
func TestAnswerToAnUnsentCallIsUnknown(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.reply(1)
	if fx := d.want(unknown); fx.id != 1 {
		t.Fatalf("the answer to %d is reported as unknown, want 1", fx.id)
	}
	d.wantGrant(1)
	d.stepCurrent(event{kind: writable})
	d.wantTransmit(1)
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// A cancellingDialect has messages for cancellations and probes.
type cancellingDialect struct{ plainDialect }

func (cancellingDialect) Cancel(jsonrpc.ID, error) Message { return Message{Method: "cancel"} }
func (cancellingDialect) Probe() Message                   { return Message{Method: "ping"} }

// The peer gets one cancellation for a request whose caller gave up, and none if the request is silent.
//
// Guarantees: G-0003.7
func TestAbandonedRequestIsCancelledOnce(t *testing.T) {
	for name, c := range map[string]struct {
		silent        bool
		cancellations int
	}{"not silent": {false, 1}, "silent": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{Dialect: cancellingDialect{}})
			d.stepCurrent(event{kind: callMade, silent: c.silent, out: &outboundFrame{id: 1}})
			d.wantTransmit(1)
			for range 3 {
				d.step(event{kind: callLeft, id: 1, err: context.Canceled})
			}
			d.wantSettled(1, Cancelled, Unknown)
			if n := d.count(transmit); n != c.cancellations {
				t.Fatalf("the peer got %d cancellations, want %d", n, c.cancellations)
			}
		})
	}
}

// Progress is passed on to a pending call, and dropped once it has ended.
func TestProgressGoesToPendingRequestsOnly(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	if fx := d.want(progress); fx.id != 1 || fx.call != d.calls[1] {
		t.Fatalf("got %+v, want the progress of call 1", fx)
	}
	d.wantGrant(1)
	d.reply(1)
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	d.wantGrant(1)
	d.wantNothing("the call has ended")
}

// Requests time out by their deadlines, and those with the same deadline in the order of their ids.
func TestRequestsExpireByDeadlineThenID(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 2*time.Second)
	d.call(2, time.Second)
	d.call(3, time.Second)
	d.call(4, 0)
	d.dropEffects()
	d.advanceToDeadline()
	d.wantSettled(2, TimedOut, Unknown)
	d.wantSettled(3, TimedOut, Unknown)
	d.wantNothing("the next deadline is a second later")
	d.advanceToDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// If a call asks for it, progress restarts its timeout, but never beyond the limit.
//
// Guarantees: G-0003.13
func TestProgressRestartsTheTimeoutUpToALimit(t *testing.T) {
	d := driveReady(t, Options{})
	for id, limit := range []time.Duration{0, 25 * time.Second} {
		id := int64(id + 1)
		d.calls[id] = new(call)
		d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: limit, restarts: limit > 0, out: returned(d.frame(id))})
	}
	d.dropEffects()
	receive := func() {
		for id := range int64(2) {
			d.stepCurrent(event{kind: progressed, id: id + 1})
		}
		d.dropEffects()
	}
	d.advance(9 * time.Second)
	receive()
	d.advance(time.Second)
	d.wantSettled(1, TimedOut, Unknown) // its timeout does not restart
	d.advance(8 * time.Second)
	receive() // 18 s after the call; ten more would exceed the limit
	d.advance(6 * time.Second)
	d.wantNothing("24 s have passed, and the limit is 25 s")
	receive()
	d.advance(time.Second)
	d.wantSettled(2, TimedOut, Unknown)
}

// When progress moves a call's deadline behind that of another call, the other one times out first.
//
// Guarantees: G-0003.13
func TestProgressMovesOneDeadlineBehindAnother(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: time.Minute, restarts: true, out: returned(d.frame(1))})
	d.call(2, 12*time.Second)
	d.now += 5 * time.Second
	d.stepCurrent(event{kind: progressed, id: 1})
	d.dropEffects()
	d.advanceToDeadline()
	d.wantSettled(2, TimedOut, Unknown)
	d.wantNothing("progress has restarted the timeout of call 1")
	d.advanceToDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// A call without a timeout gets none from progress.
//
// Guarantees: G-0003.13
func TestProgressGivesNoTimeoutToACallWithoutOne(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, limit: time.Minute, restarts: true, out: returned(d.frame(1))})
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1})
	d.want(progress)
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("the deadline is %v, want none", due)
	}
}

// The peer gets no cancellation of a request that it has not got.
//
// Guarantees: G-0003.7
func TestUnsentRequestIsNotCancelled(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancellingDialect{}})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.step(event{kind: callLeft, id: 1, err: context.Canceled})
	d.wantSettled(1, Cancelled, NotSent)
	d.stepCurrent(event{kind: writable})
	d.wantNothing("the request was not sent")
}

// The core keeps a bounded number of ended requests for reuse, and those hold no data.
func TestEndedRequestsHoldNoMemory(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(keepRequests + 1) {
		d.call(id+1, time.Minute)
	}
	for id := range int64(keepRequests + 1) {
		d.reply(id + 1)
	}
	p := &d.core.pending
	if len(p.free) != keepRequests {
		t.Errorf("%d requests are spare, want %d", len(p.free), keepRequests)
	}
	for _, spare := range p.free {
		if *spare != (request{}) {
			t.Fatalf("a spare request holds %+v, want nothing", *spare)
		}
	}
	for _, spare := range p.byDeadline[:cap(p.byDeadline)] {
		if spare != nil {
			t.Fatalf("request %d is still in the slice of deadlines", spare.id)
		}
	}
}

// A reply to a call that has timed out is reported as late, each time it comes.
//
// Guarantees: G-0005.1, G-0005.2
func TestLateReplyIsCountedNotDelivered(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.advanceToDeadline()
	d.dropEffects()
	for range 2 {
		d.reply(1)
		if fx := d.want(late); fx.id != 1 || fx.cause != TimedOut {
			t.Fatalf("got %+v, want a late reply to 1, which timed out", fx)
		}
		d.wantGrant(1)
	}
	d.reply(2)
	if fx := d.want(unknown); fx.id != 2 {
		t.Fatalf("got %+v, want an unknown reply to 2", fx)
	}
}

// A reply with an id that was never issued is reported as unknown.
//
// Guarantees: G-0005.2
func TestIdsNeverIssuedAreUnknown(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(5, 0)
	d.dropEffects()
	for _, id := range []int64{0, -1, 6, 1 << 62} {
		d.reply(id)
		d.want(unknown)
		d.wantGrant(1)
	}
}

// A second answer to the same call is reported as late. An answered call leaves no tombstone.
//
// Guarantees: G-0005.2
func TestSecondAnswerIsLate(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.reply(1)
	d.dropEffects()
	d.reply(1)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatalf("got %+v, want no cause, since there is no tombstone", fx)
	}
}

// A tombstone is used for 75 s, even if no sweep has removed it.
//
// Guarantees: G-0005.3
func TestTombstoneExpires(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{TombstoneSweep: time.Hour}})
	d.call(1, time.Second)
	d.advanceToDeadline()
	d.dropEffects()
	for _, c := range []struct {
		wait time.Duration
		want Cause
	}{{75*time.Second - 1, TimedOut}, {1, 0}} {
		d.now += c.wait
		d.reply(1)
		if fx := d.want(late); fx.cause != c.want {
			t.Fatalf("at %v the cause is %q, want %q", d.now, fx.cause, c.want)
		}
		d.dropEffects()
	}
}

// The sweep removes expired tombstones. Without any, no sweep is due.
//
// Guarantees: G-0005.3
func TestSweepRemovesTombstones(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.advanceToDeadline()
	ended := d.now
	d.dropEffects()
	for range 2 {
		d.advanceToDeadline()
	}
	if swept := d.now - ended; swept != 2*time.Minute {
		t.Fatalf("the tombstone was removed after %v, want 2m", swept)
	}
	if due := d.core.deadline(); due != 0 || d.core.tombstones.len() != 0 {
		t.Fatalf("%d tombstones, the next sweep at %v; want none", d.core.tombstones.len(), due)
	}
	d.wantNothing("a sweep has no effects")
}

// At most maxTombstones are kept. The oldest are removed first.
//
// Guarantees: G-0005.4
func TestTombstonesAreBounded(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(maxTombstones + 10) {
		d.call(id+1, 0)
	}
	d.loseLink()
	if n := d.core.tombstones.len(); n != maxTombstones {
		t.Fatalf("%d tombstones, want %d", n, maxTombstones)
	}
	d.dropEffects()
	d.reply(10)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatalf("the tombstone of 10 is still there with %q, want it removed", fx.cause)
	}
	d.reply(11)
	if fx := d.want(late); fx.cause != LinkLost {
		t.Fatalf("the cause of 11 is %q, want %q", fx.cause, LinkLost)
	}
}

// leaveTombstone makes a call and gives it up, which leaves a tombstone.
func (d *driver) leaveTombstone(id int64) {
	d.call(id, 0)
	d.step(event{kind: callLeft, id: id, err: context.Canceled})
	d.dropEffects()
}

// A sweep is due when its interval has passed. Other ticks do not put it off.
//
// Guarantees: G-0005.3
func TestSweepIsNeitherEarlyNorPutOff(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{TombstoneSweep: 75 * time.Second}}) // as long as a tombstone lives
	d.leaveTombstone(1)
	due := d.now + 75*time.Second
	if got := d.core.deadline(); got != due {
		t.Fatalf("the sweep is due at %v, want %v", got, due)
	}
	d.advance(30 * time.Second) // a tick for another deadline
	if got := d.core.deadline(); got != due {
		t.Fatalf("after a tick the sweep is due at %v, want %v", got, due)
	}
	d.advanceToDeadline()
	if n := d.core.tombstones.len(); n != 0 || d.core.deadline() != 0 {
		t.Fatalf("%d tombstones are left, want none", n)
	}
}
