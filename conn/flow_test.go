package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// receiveNotification lets a notification of the peer come in.
func (d *driver) receiveNotification() {
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
}

// setCrowded reports that many notifications wait for their handler, or that few do again.
func (d *driver) setCrowded(many bool) {
	kind := eased
	if many {
		kind = crowded
	}
	d.step(event{kind: kind})
}

// drivePaused returns an initiator that has stopped reading because its handler is behind.
func drivePaused(t *testing.T) *driver {
	d := driveReady(t, Options{Dialect: cancellingDialect{}})
	d.setCrowded(true)
	d.receiveNotification()
	d.want(notify)
	if fx := d.want(stallBegun); fx.stall != NotificationsWait {
		t.Fatalf("the stall is %v, want %v", fx.stall, NotificationsWait)
	}
	d.wantNothing("while notifications wait and nothing else does, no credit is granted")
	return d
}

func (d *driver) wantPauseEnded(after time.Duration) {
	d.t.Helper()
	if fx := d.want(stallEnded); fx.at != after {
		d.t.Fatalf("the pause took %v, want %v", fx.at, after)
	}
	d.wantGrant(1)
}

// While many notifications wait for their handler, the link is not read. It is read again when few do.
//
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

// While few notifications wait, the link is read.
//
// Guarantees: G-0004.7
func TestNothingIsPausedWithoutACrowd(t *testing.T) {
	d := driveReady(t, Options{})
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1)
}

// A pause ends at once when a call, a request of the peer or a drain begins.
//
// Guarantees: G-0004.8
func TestPauseEndsWhenWorkBegins(t *testing.T) {
	for name, begin := range map[string]func(d *driver){
		"a call":                func(d *driver) { d.call(1, 0) },
		"a request of the peer": func(d *driver) { d.stepCurrent(event{kind: requested, incoming: incomingRequest(7)}) },
		"a drain":               func(d *driver) { d.drain(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			d := drivePaused(t)
			begin(d)
			if d.count(stallEnded) != 1 || d.count(grant) != 1 {
				t.Fatalf("%d pauses ended, %d grants; want one of each", d.count(stallEnded), d.count(grant))
			}
		})
	}
}

// While a request of either side is pending, the link is read although notifications wait.
//
// Guarantees: G-0004.8
func TestNothingIsPausedWhileARequestIsPending(t *testing.T) {
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
				t.Fatal("no request is pending, and the link is still read")
			}
		})
	}
}

// While the Conn drains, the link is read although notifications wait.
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
	d.want(awaitQuiet)
	d.step(event{kind: quiet})
	d.wantTransition(Closing, Drained)
}

// Streaming requests of either side and probes do not prevent a pause.
//
// Guarantees: G-0004.7
func TestStreamingRequestDoesNotPreventAPause(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: time.Second}})
	d.calls[1] = new(call)
	d.stepCurrent(event{kind: callMade, streaming: true, out: returned(d.frame(1))})
	stays := incomingRequest(7)
	stays.streaming = true
	d.stepCurrent(event{kind: requested, incoming: stays, frames: 1})
	d.now += time.Second
	d.step(event{kind: tick, id: 2})
	if d.core.pending.byID[2] == nil {
		t.Fatal("the peer got no probe")
	}
	d.setCrowded(true)
	d.dropEffects()
	d.receiveNotification()
	d.want(notify)
	d.want(stallBegun)
	d.wantNothing("no credit is granted")
}

// The pauses for one crowd of notifications take five seconds in all. After that the link is read,
// until the crowd has eased and another one forms.
//
// Guarantees: G-0004.8
func TestPausesTakeFiveSecondsPerCrowd(t *testing.T) {
	d := drivePaused(t)
	d.advance(2 * time.Second)
	d.wantNothing("three seconds are left")
	d.call(1, 0)
	d.dropEffects()
	d.now += time.Minute
	d.reply(1)
	d.dropEffects()
	if d.core.flow.stall != NotificationsWait {
		t.Fatal("no request is pending, and the link is still read")
	}
	d.advance(3*time.Second - 1)
	d.wantNothing("the five seconds have not passed")
	d.advanceToDeadline()
	d.wantPauseEnded(3 * time.Second)
	d.receiveNotification()
	d.want(notify)
	d.wantGrant(1) // there is no further pause for this crowd
	d.setCrowded(false)
	d.setCrowded(true)
	d.receiveNotification()
	d.want(notify)
	d.want(stallBegun)
}

// A pause ends when the link is lost. The next link is read.
//
// Guarantees: G-0004.3, G-0004.9
func TestPauseEndsWithTheLink(t *testing.T) {
	d := drivePaused(t)
	d.now += time.Second
	d.loseLink()
	if d.count(stallEnded) != 1 || d.count(grant) != 0 || d.core.deadline() == 0 {
		t.Fatalf("%d pauses ended, %d grants, deadline %v; want 1, 0 and one",
			d.count(stallEnded), d.count(grant), d.core.deadline())
	}
	d.linkGone()
	d.wake()
	d.dropEffects()
	d.open()
	d.want(transitioned)
	d.want(bind)
	d.wantGrant(1) // the new link is read
}

// When the reason of a stall changes, its end is reported with its duration, and then the new one.
//
// Guarantees: G-0004.9
func TestStallsAreReportedSeparately(t *testing.T) {
	d := drivePaused(t)
	d.now += time.Second
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	if fx := d.want(stallEnded); fx.stall != NotificationsWait || fx.at != time.Second {
		t.Fatalf("the stall %v took %v, want %v for 1s", fx.stall, fx.at, NotificationsWait)
	}
	if fx := d.want(stallBegun); fx.stall != RepliesWait {
		t.Fatalf("the stall is %v, want %v", fx.stall, RepliesWait)
	}
}

// A stream that is opened during a pause gets its credit, because this side may wait for what it brings.
//
// Guarantees: G-0004.8
func TestNewStreamIsReadDuringAPause(t *testing.T) {
	d := drivePaused(t)
	d.stepCurrent(event{kind: streamOpened, stream: transport.Stream(4)})
	d.wantGrant(1)
}
