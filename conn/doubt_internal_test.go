package conn

import (
	"errors"
	"testing"
	"time"
)

var errBadGateway = errors.New("HTTP status 502")

// doubt steps the news that something else has answered the message with that id. The probe
// that may be due has the id next.
func (d *driver) doubt(id, next int64) {
	d.stepCurrent(event{kind: doubted, id: next, out: &outboundFrame{id: id}, err: errBadGateway, random: 0.5})
}

// fail steps the failure of the message with that id.
func (d *driver) fail(id int64) {
	d.stepCurrent(event{kind: failed, out: &outboundFrame{id: id}, err: errBadGateway})
}

// If something else than the peer answers a message, the peer is probed at once. If something
// else answers that probe and the next one, five seconds later at most, the link is lost.
//
// Guarantees: G-0025.8
func TestPeerInDoubtIsProbedAtOnceAndLost(t *testing.T) {
	for name, liveness := range map[string]time.Duration{"by default": 5 * time.Second, "with a longer time": time.Minute} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: liveness}})
			d.now += time.Second
			d.doubt(7, 1)
			d.wantTransmit(1)
			d.doubt(8, 2)
			d.wantNothing("the probe has not been answered yet")
			d.doubt(1, 3)
			if fx := d.want(missed); fx.frames != 1 {
				t.Fatalf("%d probes were missed, want 1", fx.frames)
			}
			d.fail(1)
			d.doubt(9, 4)
			d.wantNothing("the second probe is not due yet")
			if got := d.core.liveness.dueAt - d.now; got != 5*time.Second {
				t.Fatalf("the second probe is due after %v, want 5s", got)
			}
			d.tickWithID(5*time.Second, 5)
			d.wantTransmit(5)
			d.doubt(5, 6)
			if fx := d.want(missed); fx.frames != 2 {
				t.Fatalf("%d probes were missed, want 2", fx.frames)
			}
			if fx := d.wantTransition(Backoff, LivenessLost); !errors.Is(fx.reason.Err, errBadGateway) {
				t.Errorf("the reason is %v, want one that wraps %v", fx.reason.Err, errBadGateway)
			}
		})
	}
}

// A sign of life after the first probe forgets it. Bytes that came in before the doubt are
// none, even if the core learns of them later.
//
// Guarantees: G-0025.8
func TestSignOfLifeEndsTheDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		heard    time.Duration // since the doubt
		survives bool
	}{"before": {-time.Second, false}, "after": {time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			d := driveWatched(t, Options{})
			d.now += 3 * time.Second
			doubted := d.now
			d.doubt(7, 1)
			d.doubt(1, 2)
			d.fail(1)
			d.dropEffects()
			d.now += 5 * time.Second
			d.step(event{kind: tick, id: 3, readAt: doubted + c.heard})
			if c.survives {
				d.wantNothing("the peer was heard four seconds ago")
				return
			}
			d.wantTransmit(3)
			d.doubt(3, 4)
			d.want(missed)
			d.wantTransition(Backoff, LivenessLost)
		})
	}
}

// The peer's answer to the probe ends the doubt. The next doubt begins anew.
//
// Guarantees: G-0025.8
func TestAnswerToTheProbeEndsTheDoubt(t *testing.T) {
	d := driveWatched(t, Options{})
	for id := int64(1); id < 6; id += 2 {
		d.now += time.Second
		d.doubt(100, id)
		d.wantTransmit(id)
		d.reply(id)
		d.dropEffects()
		d.now += time.Second
		d.doubt(100, id+1)
		d.wantTransmit(id + 1)
		d.doubt(id+1, 99)
		d.want(missed)
		d.fail(id + 1)
		d.dropEffects()
		d.receiveNotification()
		d.dropEffects()
		d.wantState(Ready)
	}
}

// A doubt during the handshake starts the probe as soon as the Conn is ready.
//
// Guarantees: G-0025.8
func TestDoubtDuringTheHandshake(t *testing.T) {
	for name, doubts := range map[string]bool{"doubted": true, "not doubted": false} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, initiator, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: time.Second}})
			d.start()
			d.stepCurrent(event{kind: linkOpened, eventExtra: &eventExtra{link: deadLink{}}})
			if doubts {
				d.doubt(0, 0)
			}
			d.dropEffects()
			d.stepCurrent(event{kind: handshakeDone, id: 4})
			d.wantTransition(Ready, Handshaken)
			if !doubts {
				d.wantNothing("there is no doubt")
				return
			}
			d.wantTransmit(4)
		})
	}
}

// A peer that is not watched is not probed. Nor is one while the Conn drains.
//
// Guarantees: G-0025.3, G-0025.5
func TestDoubtOfAPeerThatIsNotWatched(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: -1}})
	d.doubt(7, 1)
	d.wantNothing("liveness is off")
	d = driveWatched(t, Options{})
	d.call(1, time.Minute)
	d.step(event{kind: drainAsked, timeout: time.Minute})
	d.dropEffects()
	d.doubt(1, 2)
	d.wantNothing("the Conn drains")
}
