package conn

import (
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// An event that the core does not know is a fault of the shell's. To pass over
// it would be to lose a caller.
func TestUnknownEventIsAFault(t *testing.T) {
	for name, kind := range map[string]eventKind{"of the lifecycle": 0, "of the traffic": overdue} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			defer func() {
				if recover() == nil {
					t.Error("it is passed over")
				}
			}()
			d.own(event{kind: kind})
		})
	}
}

// Guarantees: G-0001.2
func TestAcceptorsLinkIsOfTheFirstEpoch(t *testing.T) {
	d := drive(t, acceptor, Options{})
	d.start()
	if fx := d.want(bind); fx.epoch != 1 {
		t.Fatalf("the first epoch is %d", fx.epoch)
	}
}

// misread brings malformed frames.
func (d *driver) misread(frames int) {
	for range frames {
		d.own(event{kind: malformed, frames: 1, err: errors.New("bad")})
	}
}

// Guarantees: G-0001.12
func TestOnlyAFrameEndsARunOfMalformedOnes(t *testing.T) {
	d := driveReady(t, Options{MaxMalformed: 3})
	d.misread(2)
	d.own(event{kind: writable})
	d.misread(1)
	d.wantState(Backoff)
}

// Guarantees: G-0001.12
func TestMalformedFramesAreCountedPerLink(t *testing.T) {
	d := driveReady(t, Options{MaxMalformed: 3})
	d.misread(2)
	d.lost()
	d.gone()
	d.wake()
	d.open()
	d.handshaken()
	d.misread(2)
	d.wantState(Ready)
	d.misread(1)
	d.wantState(Backoff)
}

// The end of input is not yet the loss: an answer may be on its way to the
// core.
func TestInitiatorWaitsForTheLoss(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.forget()
	d.own(event{kind: linkEnded})
	d.wantNothing("the loss is yet to come")
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// Guarantees: G-0003.1
func TestFrameThatComesBackAfterTheLossEndsItsNotification(t *testing.T) {
	d := driveReady(t, Options{})
	caller := d.notice()
	out := d.wantTransmit(0)
	d.lost()
	d.forget()
	d.busy(out)
	if fx := d.wantSettled(0, LinkLost, NotSent); fx.call != caller {
		t.Fatal("another caller was told")
	}
}

func TestFinalReasonClosesOnce(t *testing.T) {
	d := driveReady(t, Options{Final: func(Reason) bool { return true }})
	d.lost()
	d.wantTransition(Closing, LinkBroken)
	d.want(endTasks)
	d.want(closeLink)
	d.wantNothing("it is closing already")
	d.gone()
	d.atNoDeadline()
}

// The time that an earlier incarnation was ready proves nothing of one that
// never was.
//
// Guarantees: G-0001.8
func TestOnlyBeingReadyProvesAConn(t *testing.T) {
	d := driveReady(t, Options{})
	d.lost()
	for _, want := range []ReasonKind{OpenFailed, CrashLooping} {
		d.gone()
		d.wake()
		d.forget()
		d.now += time.Hour
		d.own(event{kind: openFailed, reason: Reason{Kind: OpenFailed}})
		d.wantTransition(Backoff, want)
	}
}

// rested returns the core of a Conn after some work, and a rest.
func rested(t *testing.T, work func(*driver)) *driver {
	t.Helper()
	d := driveReady(t, Options{})
	work(d)
	d.core.park()
	d.forget()
	return d
}

func TestIdleCoreHoldsNothing(t *testing.T) {
	d := rested(t, func(d *driver) {
		d.call(1, time.Minute)
		d.streamOpened(1, 1)
		d.reply(1)
		d.handled(d.request(2))
		d.streamCut(transport.Main, 0)
		d.atDeadline()
	})
	c := d.core
	if c.out != nil || c.pending.byID != nil || c.pending.free != nil || c.incoming.serving != nil {
		t.Errorf("requests: %+v, %+v, %d effects", c.pending, c.incoming, cap(c.out))
	}
	if c.streams.others != nil || c.streams.owed != nil || c.streams.cut != nil {
		t.Errorf("streams: %+v", c.streams)
	}
}

func TestRestLosesNothing(t *testing.T) {
	congest := func(d *driver) {
		for range repliesHigh {
			d.busy(outboundFrame{reply: true})
		}
	}
	for name, c := range map[string]struct {
		work  func(*driver)
		after func(*driver)
	}{
		"a request of ours": {
			func(d *driver) { d.call(1, time.Minute) },
			func(d *driver) { d.atDeadline(); d.wantSettled(1, TimedOut, Unknown) },
		},
		"a request of the peer's": {
			func(d *driver) { d.request(1) },
			func(d *driver) { d.cancel(1); d.want(cancelServing) },
		},
		"a stream": {
			func(d *driver) { d.streamOpened(1, 0) },
			func(d *driver) {
				d.own(event{kind: notified, incoming: &Incoming{}, stream: 1, frames: 1})
				d.want(notify)
				d.wantGrantOn(1, 1)
			},
		},
		"a stream that was cut": {
			func(d *driver) { d.streamCut(transport.Main, 0) },
			func(d *driver) { d.atDeadline(); d.want(resumeStream) },
		},
		"credit that is withheld": {
			func(d *driver) { congest(d); d.request(1) },
			func(d *driver) {
				d.own(event{kind: writable})
				d.effects = d.effects[repliesHigh:]
				d.want(stallEnded)
				d.wantGrant(1)
			},
		},
	} {
		t.Run(name, func(t *testing.T) { c.after(rested(t, c.work)) })
	}
}

func TestEffectsOfALargeStepAreNotKept(t *testing.T) {
	for capacity, kept := range map[int]bool{maxEffects: true, maxEffects + 1: false} {
		c := core{out: make([]effect, 1, capacity)}
		if c.clearEffects(); len(c.out) != 0 || (cap(c.out) == capacity) != kept {
			t.Errorf("of %d effects %d are kept", capacity, cap(c.out))
		}
	}
}
