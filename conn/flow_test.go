package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// receiveNotification has the peer send a notification.
func (d *driver) receiveNotification() {
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
}

// setCrowded says that many notifications wait, or no longer.
func (d *driver) setCrowded(many bool) {
	kind := eased
	if many {
		kind = crowded
	}
	d.step(event{kind: kind})
}

// drivePaused is an initiator that has stopped to read, since its handler is behind.
func drivePaused(t *testing.T) *driver {
	d := driveReady(t, Options{Dialect: cancels{}})
	d.setCrowded(true)
	d.receiveNotification()
	d.want(notify)
	if fx := d.want(stallBegun); fx.stall != NotificationsWait {
		t.Fatalf("stalled since %v", fx.stall)
	}
	d.wantNothing("the handler is behind, and nobody waits for an answer")
	return d
}

func (d *driver) wantPauseEnded(after time.Duration) {
	d.t.Helper()
	if fx := d.want(stallEnded); fx.at != after {
		d.t.Fatalf("the pause was of %v, want %v", fx.at, after)
	}
	d.wantGrant(1)
}

// Guarantees: G-0004.7
func TestPauseEndsWhenTheHandlerHasCaughtUp(t *testing.T) {
	d := drivePaused(t)
	d.now += 3 * time.Second
	d.setCrowded(false)
	d.wantPauseEnded(3 * time.Second)
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1)
}

// Guarantees: G-0004.7
func TestNothingIsPausedWithoutACrowd(t *testing.T) {
	d := driveReady(t, Options{})
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1)
}

// Guarantees: G-0004.8
func TestPauseEndsWhenSomebodyWaits(t *testing.T) {
	for name, someone := range map[string]func(d *driver){
		"a call":                  func(d *driver) { d.call(1, 0) },
		"a request of the peer's": func(d *driver) { d.stepCurrent(event{kind: requested, incoming: incomingRequest(7)}) },
		"a drain":                 func(d *driver) { d.drain(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			d := drivePaused(t)
			someone(d)
			if d.count(stallEnded) != 1 || d.count(grant) != 1 {
				t.Fatalf("%d pauses ended, %d grants", d.count(stallEnded), d.count(grant))
			}
		})
	}
}

// While a request is in flight the link is read, whichever side waits.
//
// Guarantees: G-0004.8
func TestNothingIsPausedWhileSomebodyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(d *driver)
	}{
		"a call":           {func(d *driver) { d.call(1, 0) }, func(d *driver) { d.reply(1) }},
		"a request served": {func(d *driver) { d.request(7) }, func(d *driver) { d.handled(d.core.incoming.serving[incomingRequest(7).key]) }},
		"a request served beside one that stays": {
			func(d *driver) { d.streamingRequest(8); d.request(7) },
			func(d *driver) { d.handled(d.core.incoming.serving[incomingRequest(7).key]) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			c.begin(d)
			d.setCrowded(true)
			d.dropEffects()
			d.receiveNotification()
			d.want(notify)
			d.wantGrant(1)
			c.end(d)
			d.receiveNotification()
			if d.count(stallBegun) != 1 {
				t.Fatal("nobody waits, and the link is read")
			}
		})
	}
}

// A request that stays keeps no pause from beginning, but a drain does.
//
// Guarantees: G-0004.8
func TestNothingIsPausedWhileDraining(t *testing.T) {
	d := driveReady(t, Options{})
	stays := d.streamingRequest(7)
	d.drain(time.Minute)
	d.setCrowded(true)
	d.dropEffects()
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1)
	d.handled(stays)
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// A request that stays for ever, and a probe, are nobody who waits.
//
// Guarantees: G-0004.7
func TestStreamingRequestDoesNotPreventAPause(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancels{}, Liveness: time.Second})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	stays := incomingRequest(7)
	stays.streaming = true
	d.stepCurrent(event{kind: requested, incoming: stays, frames: 1})
	d.now += time.Second
	d.step(event{kind: tick, id: 2})
	if d.core.pending.byID[2] == nil {
		t.Fatal("the peer was not probed")
	}
	d.setCrowded(true)
	d.dropEffects()
	d.receiveNotification()
	d.want(notify)
	d.want(stallBegun)
	d.wantNothing("the link is not read")
}

// Guarantees: G-0004.8
func TestCrowdIsWaitedForFiveSecondsInAll(t *testing.T) {
	d := drivePaused(t)
	d.advance(2 * time.Second)
	d.wantNothing("there are three left")
	d.call(1, 0)
	d.dropEffects()
	d.now += time.Minute
	d.reply(1)
	d.dropEffects()
	if d.core.flow.stall != NotificationsWait {
		t.Fatal("nobody waits, and the link is read")
	}
	d.advance(3*time.Second - 1)
	d.wantNothing("its time is not over")
	d.advanceToDeadline()
	d.wantPauseEnded(3 * time.Second)
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1) // this crowd is not waited for again
	d.setCrowded(false)
	d.setCrowded(true)
	d.receiveNotification()
	d.want(notify)
	d.want(stallBegun)
}

// Guarantees: G-0004.3, G-0004.9
func TestPauseEndsWithTheLink(t *testing.T) {
	d := drivePaused(t)
	d.now += time.Second
	d.loseLink()
	if d.count(stallEnded) != 1 || d.count(grant) != 0 || d.core.deadline() == 0 {
		t.Fatalf("%d pauses ended, %d grants", d.count(stallEnded), d.count(grant))
	}
	d.linkGone()
	d.wake()
	d.dropEffects()
	d.open()
	d.want(transitioned)
	d.want(bind)
	d.wantGrant(1) // the new link is read, to see what it brings
}

// One stall may become another, and each is told with how long it was.
//
// Guarantees: G-0004.9
func TestStallsAreToldApart(t *testing.T) {
	d := drivePaused(t)
	d.now += time.Second
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	if fx := d.want(stallEnded); fx.stall != NotificationsWait || fx.at != time.Second {
		t.Fatalf("%v for %v", fx.stall, fx.at)
	}
	if fx := d.want(stallBegun); fx.stall != RepliesWait {
		t.Fatal(fx.stall)
	}
}

// A stream that is opened during a pause gets its credit: what was asked for
// has to be read.
//
// Guarantees: G-0004.8
func TestNewStreamIsReadDuringAPause(t *testing.T) {
	d := drivePaused(t)
	d.stepCurrent(event{kind: streamOpened, stream: transport.Stream(4)})
	d.wantGrant(1)
}
