package conn

import (
	"testing"
	"time"
)

// driveWatched returns an initiator whose peer is probed after five seconds of silence.
func driveWatched(t *testing.T, o Options) *driver {
	o.Dialect, o.Liveness = cancellingDialect{}, 5*time.Second
	return driveReady(t, o)
}

// tickWithID lets time pass and then steps a tick that brings an id for a probe.
func (d *driver) tickWithID(wait time.Duration, id int64) {
	d.now += wait
	d.step(event{kind: tick, random: 0.5, id: id})
}

// A silent peer gets two probes. If it answers neither, the link is lost.
//
// Guarantees: G-0025.1
func TestSilentPeerIsProbedTwiceAndLost(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second-1, 1)
	d.wantNothing("the silence is not long enough")
	d.tickWithID(1, 2)
	if out := d.wantTransmit(2); out.call != nil || out.notification {
		t.Fatalf("the probe is %+v, want a request without a caller", out)
	}
	d.tickWithID(5*time.Second, 3)
	if fx := d.want(missed); fx.frames != 1 {
		t.Fatalf("%d probes were missed, want 1", fx.frames)
	}
	d.wantTransmit(3)
	d.tickWithID(5*time.Second-1, 4)
	d.wantNothing("the peer has time left to answer the second probe")
	d.tickWithID(1, 5)
	if fx := d.want(missed); fx.frames != 2 {
		t.Fatalf("%d probes were missed, want 2", fx.frames)
	}
	fx := d.wantTransition(Backoff, LivenessLost)
	if got := fx.reason.Err.Error(); got != "no sign of life for 15s" {
		t.Errorf("the reason is %q, want \"no sign of life for 15s\"", got)
	}
}

// Only missed probes in a row count: after a message of the peer, the count starts again at zero.
//
// Guarantees: G-0025.1, G-0025.2
func TestMissedProbesAreForgottenOnceThePeerIsHeard(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.tickWithID(5*time.Second, 2)
	d.tickWithID(2*time.Second, 3)
	d.receiveNotification()
	d.tickWithID(3*time.Second, 4)
	d.dropEffects()
	d.tickWithID(2*time.Second, 5)
	d.wantTransmit(5)
	d.tickWithID(5*time.Second, 6)
	if fx := d.want(missed); fx.frames != 1 {
		t.Fatalf("%d probes were missed, want 1", fx.frames)
	}
	d.wantTransmit(6)
	d.wantState(Ready)
}

// If the tick at which a probe is due brings no id, the probe is sent at the next tick with one.
func TestProbeIsSentAtATickThatBringsAnID(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 0)
	d.wantNothing("there is no id for a probe")
	d.tickWithID(0, 1)
	d.wantTransmit(1)
}

// Any frame of the peer is a sign of life, and resets the count of missed probes.
//
// Guarantees: G-0025.2
func TestAnyFrameIsASignOfLife(t *testing.T) {
	for name, sign := range map[string]func(*driver){
		"the answer":           func(d *driver) { d.reply(1) },
		"an error":             func(d *driver) { d.stepCurrent(event{kind: replied, id: 1, frames: 1}) },
		"a notification":       func(d *driver) { d.receiveNotification() },
		"progress of anything": func(d *driver) { d.stepCurrent(event{kind: progressed, id: 9, frames: 1}) },
		"garbage":              func(d *driver) { d.stepCurrent(event{kind: malformed, frames: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			d := driveWatched(t, Options{})
			d.tickWithID(5*time.Second, 1)
			d.tickWithID(4*time.Second, 2)
			sign(d)
			d.dropEffects()
			d.tickWithID(time.Second, 3)
			d.wantNothing("it was heard a second ago")
			d.tickWithID(4*time.Second, 4)
			d.wantTransmit(4)
			d.tickWithID(5*time.Second, 5)
			if fx := d.want(missed); fx.frames != 1 {
				t.Fatalf("%d probes were missed, want 1, since the count starts again", fx.frames)
			}
		})
	}
}

// While bytes of an unfinished frame come in, no probe is sent.
//
// Guarantees: G-0025.2
func TestUnfinishedFrameIsASignOfLife(t *testing.T) {
	d := driveWatched(t, Options{})
	for range 10 {
		d.now += 5 * time.Second
		d.step(event{kind: tick, id: 1, readAt: d.now})
		d.wantNothing("bytes are coming in")
	}
	d.tickWithID(5*time.Second, 2)
	d.wantTransmit(2)
}

// While this side does not read the link, the peer is neither probed nor lost.
//
// Guarantees: G-0025.3
func TestPeerThatIsNotReadIsNotProbed(t *testing.T) {
	d := driveWatched(t, Options{})
	congest := func() {
		for range repliesHigh {
			d.busy(outboundFrame{reply: true})
		}
		d.receiveNotification()
		d.dropEffects()
	}
	for range 10 {
		congest()
		d.now += 5 * time.Second
		d.step(event{kind: tick, id: 1, moved: true})
		if d.core.state() != Ready || d.core.pending.len() > 0 {
			t.Fatalf("state %s, %d requests pending; want ready without a probe", d.core.state(), d.core.pending.len())
		}
	}
	congest()
	d.now += 4 * time.Second
	d.stepCurrent(event{kind: writable})
	d.dropEffects()
	d.tickWithID(time.Second, 2)
	d.wantNothing("the link was read for one second only")
	d.tickWithID(4*time.Second, 3)
	d.wantTransmit(3)
}

// During a drain the peer is not probed, and a probe without an answer does not hold up the end.
//
// Guarantees: G-0025.3
func TestPeerIsNotWatchedWhileDraining(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.call(2, 0)
	d.drain(time.Hour)
	d.dropEffects()
	for range 10 {
		d.tickWithID(5*time.Second, 3)
	}
	d.wantNothing("the drain has its own deadline")
	d.reply(2)
	d.wantSettled(2, Answered, Sent)
	d.wantGrant(1)
	d.wantTransition(Closing, Drained) // although the probe has no answer
}

// A probe settles no caller, whether it is answered, answered late or lost.
//
// Guarantees: G-0025.4
func TestProbeIsNotACall(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.wantTransmit(1)
	d.tickWithID(5*time.Second, 2)
	d.want(missed)
	d.wantTransmit(2)
	d.reply(1) // to the probe that was missed
	if fx := d.want(late); fx.cause != TimedOut {
		t.Fatalf("the late reply is to a probe that ended as %v, want %v", fx.cause, TimedOut)
	}
	d.wantGrant(1)
	d.reply(2)
	d.wantGrant(1)
	d.wantNothing("a probe has no caller")
	d.tickWithID(5*time.Second, 3)
	d.wantTransmit(3)
	d.loseLink()
	if d.count(settle) != 0 {
		t.Fatal("the loss settled a call, want none for a probe")
	}
}

// A probe that a busy link never takes does not count as missed, since the peer has not got it, and
// settles no caller.
//
// Guarantees: G-0025.4
func TestProbeThatALinkDoesNotTake(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	probe := d.wantTransmit(1)
	for range busyRetries {
		d.busy(probe)
		d.advanceToDeadline()
		probe = d.wantTransmit(1)
	}
	d.busy(probe)
	d.wantNothing("a probe has no caller")
	if d.core.pending.len() != 0 {
		t.Fatalf("%d requests are pending, want none", d.core.pending.len())
	}
	d.now = 6*time.Second + 5*time.Second // 5 s after it was due
	d.step(event{kind: tick, id: 2, random: 0.5})
	d.wantTransmit(2)
}

// An initiator probes its peer if its link reports incoming bytes or Liveness is set. An acceptor does only if Liveness is set.
//
// Guarantees: G-0025.5, G-0025.9
func TestWhichPeersAreProbed(t *testing.T) {
	for name, c := range map[string]struct {
		role         role
		liveness     time.Duration
		reportsBytes bool
		want         time.Duration
	}{
		"a link that reports bytes":                       {initiator, 0, true, defaultLiveness},
		"a link that does not report bytes":               {initiator, 0, false, 0},
		"a link that does not report bytes, Liveness set": {initiator, time.Second, false, time.Second},
		"Liveness turned off":                             {initiator, -1, true, 0},
		"an acceptor":                                     {acceptor, 0, true, 0},
		"an acceptor, Liveness set":                       {acceptor, time.Second, false, time.Second},
		"an acceptor, Liveness turned off":                {acceptor, -1, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, c.role, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: c.liveness}})
			d.start()
			d.stepCurrent(event{kind: linkOpened, reportsBytes: c.reportsBytes, eventExtra: &eventExtra{link: deadLink{}}})
			d.handshaken()
			if got := d.core.liveness.every; got != c.want || (d.core.liveness.dueAt != 0) != (c.want != 0) {
				t.Fatalf("probes are sent after %v, the next at %v; want after %v", got, d.core.liveness.dueAt, c.want)
			}
		})
	}
}

// A Conn whose dialect has no probe sends none and has no deadline for it.
//
// Guarantees: G-0025.5
func TestDialectWithoutProbeHasNoLiveness(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{Liveness: time.Second}})
	d.tickWithID(time.Second, 1)
	d.wantNothing("the dialect has no probe")
	if d.core.deadline() != 0 || d.core.liveness.dueAt != 0 {
		t.Fatalf("deadlines at %v and %v, want none", d.core.deadline(), d.core.liveness.dueAt)
	}
}

// Events that this side causes itself are no sign of life of the peer.
//
// Guarantees: G-0025.2
func TestOwnEventsAreNoSignOfLife(t *testing.T) {
	for name, own := range map[string]event{
		"the probe's own stream":    {kind: streamOpened, stream: 4},
		"a stream that is cut":      {kind: streamLost, resumable: true},
		"a link that has room":      {kind: writable},
		"a frame that was not sent": {kind: failed, unsent: true, out: new(outboundFrame)},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveWatched(t, Options{})
			for id := range int64(3) {
				d.tickWithID(5*time.Second, id+1)
				d.stepCurrent(own)
			}
			d.wantState(Backoff)
		})
	}
}

// Bytes that a tick for another deadline reports count as a sign of life.
//
// Guarantees: G-0025.2
func TestSignOfLifeAtATickForAnotherDeadline(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.dropEffects()
	d.now += time.Second
	d.step(event{kind: tick, readAt: d.now})
	d.tickWithID(4*time.Second, 2)
	d.wantNothing("it was heard four seconds ago")
}

// A peer that is heard at the moment of a probe has the full time again.
//
// Guarantees: G-0025.1
func TestSignOfLifeResetsMissedProbes(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.tickWithID(5*time.Second, 2) // one probe is missed
	d.receiveNotification()
	d.tickWithID(5*time.Second, 3)
	d.tickWithID(5*time.Second, 4)
	d.wantState(Ready)
	d.tickWithID(5*time.Second, 5)
	d.wantState(Backoff)
}

// Progress with the id of a probe is dropped.
//
// Guarantees: G-0025.4
func TestProgressOfAProbeIsDropped(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.wantTransmit(1)
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	d.wantGrant(1)
	d.wantNothing("a probe has no caller")
}

// A probe that was missed leaves neither a frame nor a stream.
//
// Guarantees: G-0025.4
func TestMissedProbeLeavesNothing(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.stepCurrent(event{kind: streamOpened, stream: 4, id: 1})
	d.dropEffects()
	d.tickWithID(5*time.Second, 2)
	d.want(missed)
	if fx := d.want(endStream); fx.stream != 4 {
		t.Fatalf("stream %d was ended, want 4", fx.stream)
	}
	probe := d.wantTransmit(2)
	d.busy(probe)
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
	d.dropEffects()
	d.now += 5 * time.Second
	d.drain(time.Hour)
	if !d.core.outbound.empty() {
		t.Fatal("the frame of the probe still waits")
	}
}

// If a tick comes much too late, because this process did not run, the peer still has at least three
// quarters of its time to answer the probe.
//
// Guarantees: G-0025.1
func TestLateTickLeavesThePeerItsTime(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(time.Hour, 1)
	d.wantTransmit(1)
	d.tickWithID(3*time.Second, 2)
	d.wantNothing("the probe was sent three seconds ago")
	if due := d.core.liveness.dueAt - d.now; due != 750*time.Millisecond {
		t.Fatalf("the next check is in %v, want 750ms", due)
	}
}

// driveOverHTTP returns an initiator whose link carries each probe as a separate request.
func driveOverHTTP(t *testing.T, d Dialect, liveness time.Duration) *driver {
	driven := drive(t, initiator, Options{Dialect: d, Tuning: Tuning{Liveness: liveness}})
	driven.start()
	driven.stepCurrent(event{kind: linkOpened, reportsBytes: true, requestPerProbe: true, eventExtra: &eventExtra{link: deadLink{}}})
	driven.handshaken()
	driven.dropEffects()
	return driven
}

// countProbes counts the probes in so many minutes. The peer answers each at once, and the timer
// fires when the core asks for it.
func (d *driver) countProbes(minutes int) (count int) {
	id := int64(1000)
	for end := d.now + time.Duration(minutes)*time.Minute; d.core.liveness.dueAt <= end; id++ {
		d.tickWithID(d.core.liveness.dueAt-d.now, id)
		if d.core.liveness.probe == id {
			count++
			d.reply(id)
		}
		d.dropEffects()
	}
	return count
}

// A subscribed dialect is that of a program that may have subscribed to something.
type subscribed struct {
	cancellingDialect
	to bool
}

func (s *subscribed) Awaits() bool { return s.to }

// Over HTTP, a peer is probed about once a minute while nothing waits for it, and at the usual
// interval while a call or a subscription does, or if Liveness is set.
//
// Guarantees: G-0025.7
func TestAnIdlePeerOverHTTPIsSeldomProbed(t *testing.T) {
	if got := driveOverHTTP(t, cancellingDialect{}, 0).countProbes(10); got > 10 || got < 9 {
		t.Errorf("idle: %d probes in 10 minutes, want 9 or 10", got)
	}
	if got := driveOverHTTP(t, cancellingDialect{}, 5*time.Second).countProbes(10); got != 120 {
		t.Errorf("Liveness is 5 s: %d probes in 10 minutes, want 120", got)
	}
	waiting := driveOverHTTP(t, cancellingDialect{}, 0)
	waiting.call(1, 0)
	if got := waiting.countProbes(10); got != 120 {
		t.Errorf("while a call waits: %d probes in 10 minutes, want 120", got)
	}
	waiting.reply(1)
	if got := waiting.countProbes(10); got > 11 {
		t.Errorf("after the call: %d probes in 10 minutes, want 11 at most", got)
	}
	s := &subscribed{to: true}
	d := driveOverHTTP(t, s, 0)
	if got := d.countProbes(10); got != 120 {
		t.Errorf("with a subscription: %d probes in 10 minutes, want 120", got)
	}
	s.to = false
	if got := d.countProbes(10); got > 11 {
		t.Errorf("after the subscription: %d probes in 10 minutes, want 11 at most", got)
	}
}

// When a call begins to wait for an idle peer over HTTP, the silence is measured from that call on,
// with the usual interval.
//
// Guarantees: G-0025.1, G-0025.7
func TestAnIdlePeerIsWatchedFromTheCallOn(t *testing.T) {
	d := driveOverHTTP(t, cancellingDialect{}, 0)
	d.tickWithID(5*time.Second, 2)
	d.wantNothing("nothing waits for the peer")
	d.now += 40 * time.Second
	d.call(1, 0)
	d.dropEffects()
	d.tickWithID(5*time.Second-1, 3)
	d.wantNothing("the silence since the call is not long enough")
	for n := range 2 {
		d.tickWithID(5*time.Second, int64(4+n))
	}
	d.wantState(Ready)
	d.tickWithID(5*time.Second, 6)
	d.wantState(Backoff)
	if d.core.reason.Kind != LivenessLost {
		t.Errorf("the reason is %v, want %v", d.core.reason, LivenessLost)
	}
}

// An idle peer over HTTP that does not answer a probe gets the second one after the usual interval.
//
// Guarantees: G-0025.7
func TestAnIdlePeerThatDoesNotAnswerIsLost(t *testing.T) {
	d := driveOverHTTP(t, cancellingDialect{}, 0)
	d.tickWithID(5*time.Second, 2)
	d.tickWithID(55*time.Second, 3)
	d.wantTransmit(3)
	d.tickWithID(5*time.Second, 4)
	d.tickWithID(5*time.Second, 5)
	d.wantState(Backoff)
}

// Bytes that came in once count as one sign of life, even if several ticks report them.
//
// Guarantees: G-0025.1, G-0025.2
func TestOneSignOfLifeCountsOnce(t *testing.T) {
	d := driveWatched(t, Options{})
	heard := d.now + time.Second
	for n := range 4 {
		d.wantState(Ready)
		d.now = heard + time.Duration(n)*5*time.Second
		d.step(event{kind: tick, random: 0.5, id: int64(n + 1), readAt: heard})
	}
	d.wantState(Backoff)
}

// A call that begins to wait may bring the next check forward, but never puts it off.
//
// Guarantees: G-0025.7
func TestCallDoesNotPutOffTheNextCheck(t *testing.T) {
	var l liveness
	l.begin(0, 5*time.Second, time.Minute)
	if l.await(time.Second); l.dueAt != 5*time.Second {
		t.Errorf("the check is at %v, want 5s", l.dueAt)
	}
	if next, _ := l.watch(5*time.Second, false); next != keepWaiting || l.dueAt != time.Minute {
		t.Errorf("got %v and the next check at %v, want keepWaiting and 1m", next, l.dueAt)
	}
	if l.await(10 * time.Second); l.dueAt != 15*time.Second {
		t.Errorf("the next check is at %v, want 15s", l.dueAt)
	}
	if next, _ := l.watch(15*time.Second, true); next != sendProbe {
		t.Errorf("got %v, want sendProbe", next)
	}
	l.asked = true // and nothing waits any more
	if next, missed := l.watch(20*time.Second, false); next != sendProbe || !missed {
		t.Errorf("got %v, missed %v; want sendProbe and a missed probe although nothing waits", next, missed)
	}
}

// A peer that was heard while a call waits for it is not probed until it has been silent for the whole time, wherever
// the check before that was.
//
// Guarantees: G-0025.7
func TestPeerThatWasHeardDuringACallIsNotProbed(t *testing.T) {
	for _, heard := range []instant{time.Second, 4 * time.Second, 5 * time.Second} {
		var l liveness
		l.begin(0, 5*time.Second, time.Minute)
		l.hear(heard)
		if next, missed := l.watch(5*time.Second, true); next != keepWaiting || missed || l.dueAt != heard+5*time.Second {
			t.Errorf("heard at %v: got %v, missed %v, and the next check at %v, want keepWaiting until %v", heard, next, missed, l.dueAt, heard+5*time.Second)
		}
		if next, _ := l.watch(l.dueAt, true); next != sendProbe {
			t.Errorf("heard at %v: got %v after the whole time, want sendProbe", heard, next)
		}
	}
}
