package conn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0003.1, G-0003.2
func TestEveryWayARequestEnds(t *testing.T) {
	gone := errors.New("caller gone")
	for name, c := range map[string]struct {
		end      func(*driver) // request 1 was handed to the link
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
			}
			d.wantSettled(1, c.cause, c.delivery)
			if d.core.pending.len() != 0 || d.count(settle) != 0 {
				t.Fatal("it is still pending, or was settled twice")
			}
		})
	}
}

// Guarantees: G-0003.2, G-0007.3
func TestRequestThatNeverLeftIsNotSent(t *testing.T) {
	gone := errors.New("caller gone")
	for name, c := range map[string]struct {
		end   func(*driver) // request 1 waits behind a busy link
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
			}
			d.wantSettled(1, c.cause, NotSent)
			if n := d.count(transmit); n != 0 || !d.core.outbound.empty() {
				t.Fatalf("%d frames were sent for it", n)
			}
			if d.core.tombstones.len() != 0 {
				t.Fatal("what was not sent has no late reply")
			}
		})
	}
}

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
				t.Fatalf("the error is %v", fx.err)
			}
			d.sendNotification()
			d.wantSettled(0, c.cause, NotSent)
			d.wantNothing("neither is sent")
		})
	}
}

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

// Guarantees: G-0003.4
func TestStaleFrameIsRefused(t *testing.T) {
	d := driveReady(t, Options{})
	d.step(event{kind: callMade, epoch: d.core.epoch - 1, out: &outboundFrame{id: 1}})
	if fx := d.wantSettled(1, Refused, NotSent); !errors.Is(fx.err, ErrStale) {
		t.Fatalf("the error is %v", fx.err)
	}
}

// Guarantees: G-0003.1
func TestSameIDTwiceIsRefused(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.wantTransmit(1)
	first := d.calls[1]
	d.call(1, 0)
	if fx := d.wantSettled(1, Refused, NotSent); !errors.Is(fx.err, errIDInUse) {
		t.Fatalf("the error is %v", fx.err)
	}
	d.calls[1] = first
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// Guarantees: G-0003.3
func TestLossSettlesInTheOrderOfTheCalls(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(50) {
		d.call(id+1, 0)
	}
	d.dropEffects()
	d.loseLink(7, 9)
	d.wantTransition(Backoff, LinkBroken)
	for id := range int64(50) {
		want := Unknown
		if id+1 == 7 || id+1 == 9 {
			want = NotSent
		}
		d.wantSettled(id+1, LinkLost, want)
	}
	d.want(endTasks)
	d.want(closeLink)
}

// A peer that guesses an id must not end a call that is still queued.
//
// Guarantees: G-0003.6
func TestAnswerToWhatWasNotSentIsUnknown(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.reply(1)
	if fx := d.want(unknown); fx.id != 1 {
		t.Fatalf("unknown %d", fx.id)
	}
	d.wantGrant(1)
	d.stepCurrent(event{kind: writable})
	d.wantTransmit(1)
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// cancels is a dialect that can tell the peer of an abandoned request.
type cancels struct{ plain }

func (cancels) Cancel(int64, error) Message { return Message{Method: "cancel"} }
func (cancels) Probe() Message              { return Message{Method: "ping"} }

// Guarantees: G-0003.7
func TestPeerIsToldOnceOfAnAbandonedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		silent bool
		told   int
	}{"loud": {false, 1}, "silent": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{Dialect: cancels{}})
			d.stepCurrent(event{kind: callMade, silent: c.silent, out: &outboundFrame{id: 1}})
			d.wantTransmit(1)
			for range 3 {
				d.step(event{kind: callLeft, id: 1, err: context.Canceled})
			}
			d.wantSettled(1, Cancelled, Unknown)
			if n := d.count(transmit); n != c.told {
				t.Fatalf("the peer was told %d times", n)
			}
		})
	}
}

func TestProgressGoesToPendingRequestsOnly(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	if fx := d.want(progress); fx.id != 1 || fx.call != d.calls[1] {
		t.Fatalf("got %+v", fx)
	}
	d.wantGrant(1)
	d.reply(1)
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	d.wantGrant(1)
	d.wantNothing("it has ended")
}

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
	d.wantNothing("the next is due a second later")
	d.advanceToDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.13
func TestProgressRestartsTheTimeoutUpToALimit(t *testing.T) {
	d := driveReady(t, Options{})
	for id, limit := range []time.Duration{0, 25 * time.Second} {
		id := int64(id + 1)
		d.calls[id] = new(call)
		d.stepCurrent(event{kind: callMade, timeout: 10 * time.Second, limit: limit, restarts: limit > 0, out: returned(d.frame(id))})
	}
	d.dropEffects()
	tell := func() {
		for id := range int64(2) {
			d.stepCurrent(event{kind: progressed, id: id + 1})
		}
		d.dropEffects()
	}
	d.advance(9 * time.Second)
	tell()
	d.advance(time.Second)
	d.wantSettled(1, TimedOut, Unknown) // it has not asked for more time
	d.advance(8 * time.Second)
	tell() // 18 s after the call: 28 would be beyond the limit
	d.advance(6 * time.Second)
	d.wantNothing("24 s have passed, and the limit is 25")
	tell()
	d.advance(time.Second)
	d.wantSettled(2, TimedOut, Unknown)
}

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
	d.wantNothing("the other has begun anew")
	d.advanceToDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.13
func TestProgressGivesNoTimeoutToACallWithoutOne(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, limit: time.Minute, restarts: true, out: returned(d.frame(1))})
	d.dropEffects()
	d.stepCurrent(event{kind: progressed, id: 1})
	d.want(progress)
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("it is due at %v", due)
	}
}

// Guarantees: G-0003.7
func TestPeerIsNotToldOfWhatItHasNotGot(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancels{}})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.step(event{kind: callLeft, id: 1, err: context.Canceled})
	d.wantSettled(1, Cancelled, NotSent)
	d.stepCurrent(event{kind: writable})
	d.wantNothing("no byte of it left")
}

func TestWhatHasEndedIsNotKeptAlive(t *testing.T) {
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
			t.Fatalf("a spare request holds %+v", *spare)
		}
	}
	for _, spare := range p.byDeadline[:cap(p.byDeadline)] {
		if spare != nil {
			t.Fatalf("request %d is still among the deadlines", spare.id)
		}
	}
}

// Guarantees: G-0005.1, G-0005.2
func TestLateReplyIsCountedNotDelivered(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.advanceToDeadline()
	d.dropEffects()
	for range 2 {
		d.reply(1)
		if fx := d.want(late); fx.id != 1 || fx.cause != TimedOut {
			t.Fatalf("got %+v", fx)
		}
		d.wantGrant(1)
	}
	d.reply(2)
	if fx := d.want(unknown); fx.id != 2 {
		t.Fatalf("got %+v", fx)
	}
}

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

// Guarantees: G-0005.2
func TestSecondAnswerIsLate(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.reply(1)
	d.dropEffects()
	d.reply(1)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatalf("what was answered left a tombstone: %+v", fx)
	}
}

// Guarantees: G-0005.3
func TestTombstoneDecays(t *testing.T) {
	d := driveReady(t, Options{TombstoneSweep: time.Hour})
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
			t.Fatalf("after %v it is remembered as %q", d.now, fx.cause)
		}
		d.dropEffects()
	}
}

// Guarantees: G-0005.3
func TestSweepEmptiesTheGraveyard(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.advanceToDeadline()
	died := d.now
	d.dropEffects()
	for range 2 {
		d.advanceToDeadline()
	}
	if swept := d.now - died; swept != 2*time.Minute {
		t.Fatalf("it was swept after %v", swept)
	}
	if due := d.core.deadline(); due != 0 || d.core.tombstones.len() != 0 {
		t.Fatalf("an empty graveyard wants a sweep at %v", due)
	}
	d.wantNothing("a sweep is nobody's business")
}

// Guarantees: G-0005.4
func TestTombstonesAreBounded(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(maxTombstones + 10) {
		d.call(id+1, 0)
	}
	d.loseLink()
	if n := d.core.tombstones.len(); n != maxTombstones {
		t.Fatalf("%d tombstones", n)
	}
	d.dropEffects()
	d.reply(10)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatal("the oldest should have gone first")
	}
	d.reply(11)
	if fx := d.want(late); fx.cause != LinkLost {
		t.Fatal("the eleventh should be here still")
	}
}

// leaveTombstone leaves a tombstone.
func (d *driver) leaveTombstone(id int64) {
	d.call(id, 0)
	d.step(event{kind: callLeft, id: id, err: context.Canceled})
	d.dropEffects()
}

// Guarantees: G-0005.3
func TestSweepIsNeitherEarlyNorPutOff(t *testing.T) {
	d := driveReady(t, Options{TombstoneSweep: 75 * time.Second}) // as long as a tombstone lives
	d.leaveTombstone(1)
	due := d.now + 75*time.Second
	if got := d.core.deadline(); got != due {
		t.Fatalf("the sweep is due at %v, want %v", got, due)
	}
	d.advance(30 * time.Second) // a tick of another's
	if got := d.core.deadline(); got != due {
		t.Fatalf("after a tick the sweep is due at %v, want %v", got, due)
	}
	d.advanceToDeadline()
	if n := d.core.tombstones.len(); n != 0 || d.core.deadline() != 0 {
		t.Fatalf("%d tombstones are left", n)
	}
}
