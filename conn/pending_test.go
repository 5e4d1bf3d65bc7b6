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
		"peer error":         {func(d *driver) { d.own(event{kind: replied, id: 1, frames: 1, fault: &jsonrpc.Error{Code: 1}}) }, PeerError, Sent},
		"cancelled":          {func(d *driver) { d.step(event{kind: callLeft, id: 1, err: gone}) }, Cancelled, Unknown},
		"context's deadline": {func(d *driver) { d.step(event{kind: callLeft, id: 1, timeout: -1, err: gone}) }, TimedOut, Unknown},
		"timed out":          {func(d *driver) { d.after(30 * time.Second) }, TimedOut, Unknown},
		"link lost":          {func(d *driver) { d.lost() }, LinkLost, Unknown},
		"link lost, unsent":  {func(d *driver) { d.lost(1) }, LinkLost, NotSent},
		"failed, unsent":     {func(d *driver) { d.own(event{kind: failed, out: outboundFrame{id: 1}, unsent: true, err: gone}) }, Refused, NotSent},
		"failed on its way":  {func(d *driver) { d.own(event{kind: failed, out: outboundFrame{id: 1}, err: gone}) }, LinkLost, Unknown},
		"link closed":        {func(d *driver) { d.own(event{kind: failed, out: d.frame(1), unsent: true, err: transport.ErrClosed}) }, LinkLost, NotSent},
		"shut down":          {func(d *driver) { d.stop() }, ShutDown, Unknown},
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
		"timed out": {func(d *driver) { d.after(30 * time.Second) }, TimedOut},
		"link lost": {func(d *driver) { d.lost() }, LinkLost},
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
		"backoff":      {func(d *driver) { d.start(); d.open(); d.lost() }, Refused},
		"closing":      {func(d *driver) { d.start(); d.stop() }, ShutDown},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, initiator, Options{})
			c.reach(d)
			d.forget()
			d.call(1, 0)
			fx := d.wantSettled(1, c.cause, NotSent)
			var state *StateError
			if c.cause == Refused && (!errors.As(fx.err, &state) || state.State != d.core.state()) {
				t.Fatalf("the error is %v", fx.err)
			}
			d.notice()
			d.wantSettled(0, c.cause, NotSent)
			d.wantNothing("neither is sent")
		})
	}
}

func TestHandshakeCallsBeforeReady(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	d.open()
	d.forget()
	d.own(event{kind: callMade, handshake: true, out: outboundFrame{id: 1}})
	d.wantTransmit(1)
	d.handshaken()
	d.forget()
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// Guarantees: G-0003.4
func TestStaleFrameIsRefused(t *testing.T) {
	d := driveReady(t, Options{})
	d.step(event{kind: callMade, epoch: d.core.epoch - 1, out: outboundFrame{id: 1}})
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
	d.forget()
	d.lost(7, 9)
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
	d.own(event{kind: writable})
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
			d.own(event{kind: callMade, silent: c.silent, out: outboundFrame{id: 1}})
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
	d.forget()
	d.own(event{kind: progressed, id: 1, frames: 1})
	if fx := d.want(progress); fx.id != 1 || fx.call != d.calls[1] {
		t.Fatalf("got %+v", fx)
	}
	d.wantGrant(1)
	d.reply(1)
	d.forget()
	d.own(event{kind: progressed, id: 1, frames: 1})
	d.wantGrant(1)
	d.wantNothing("it has ended")
}

func TestRequestsExpireByDeadlineThenID(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 2*time.Second)
	d.call(2, time.Second)
	d.call(3, time.Second)
	d.call(4, 0)
	d.forget()
	d.atDeadline()
	d.wantSettled(2, TimedOut, Unknown)
	d.wantSettled(3, TimedOut, Unknown)
	d.wantNothing("the next is due a second later")
	d.atDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.13
func TestProgressRestartsTheTimeoutUpToALimit(t *testing.T) {
	d := driveReady(t, Options{})
	for id, limit := range []time.Duration{0, 25 * time.Second} {
		id := int64(id + 1)
		d.calls[id] = new(call)
		d.own(event{kind: callMade, timeout: 10 * time.Second, limit: limit, restarts: limit > 0, out: d.frame(id)})
	}
	d.forget()
	tell := func() {
		for id := range int64(2) {
			d.own(event{kind: progressed, id: id + 1})
		}
		d.forget()
	}
	d.after(9 * time.Second)
	tell()
	d.after(time.Second)
	d.wantSettled(1, TimedOut, Unknown) // it has not asked for more time
	d.after(8 * time.Second)
	tell() // 18 s after the call: 28 would be beyond the limit
	d.after(6 * time.Second)
	d.wantNothing("24 s have passed, and the limit is 25")
	tell()
	d.after(time.Second)
	d.wantSettled(2, TimedOut, Unknown)
}
