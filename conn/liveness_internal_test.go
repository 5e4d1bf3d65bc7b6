package conn

import (
	"testing"
	"time"
)

// driveWatched is an initiator whose peer may be silent for five seconds.
func driveWatched(t *testing.T, o Options) *driver {
	o.Dialect, o.Liveness = cancels{}, 5*time.Second
	return driveReady(t, o)
}

// tickWithID fires the timer with an id to use.
func (d *driver) tickWithID(wait time.Duration, id int64) {
	d.now += wait
	d.step(event{kind: tick, random: 0.5, id: id})
}

// Guarantees: G-0025.1
func TestSilentPeerIsAskedTwiceAndLost(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second-1, 1)
	d.wantNothing("the silence is not long enough")
	d.tickWithID(1, 2)
	if out := d.wantTransmit(2); out.call != nil || out.notification {
		t.Fatalf("the probe is %+v", out)
	}
	d.tickWithID(5*time.Second, 3)
	if fx := d.want(missed); fx.frames != 1 {
		t.Fatalf("%d missed", fx.frames)
	}
	d.wantTransmit(3)
	d.tickWithID(5*time.Second-1, 4)
	d.wantNothing("the second probe has time yet")
	d.tickWithID(1, 5)
	if fx := d.want(missed); fx.frames != 2 {
		t.Fatalf("%d missed", fx.frames)
	}
	fx := d.wantTransition(Backoff, LivenessLost)
	if got := fx.reason.Err.Error(); got != "no sign of life for 15s" {
		t.Errorf("the reason is %q", got)
	}
}

// Misses count in a row: a peer that is heard again has as much time as before.
//
// Guarantees: G-0025.1, G-0025.2
func TestMissIsForgottenOnceThePeerIsHeard(t *testing.T) {
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
		t.Fatalf("%d missed", fx.frames)
	}
	d.wantTransmit(6)
	d.wantState(Ready)
}

// A tick that brings no id to ask with was too early for the one who sent it:
// the next asks.
func TestPeerIsAskedAtATickThatBringsAnID(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 0)
	d.wantNothing("there is no id for a probe")
	d.tickWithID(0, 1)
	d.wantTransmit(1)
}

// Guarantees: G-0025.2
func TestAnySignOfLifeWillDo(t *testing.T) {
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
				t.Fatalf("%d missed: the count begins anew", fx.frames)
			}
		})
	}
}

// Guarantees: G-0025.2
func TestUnfinishedFrameIsASignOfLife(t *testing.T) {
	d := driveWatched(t, Options{})
	for range 10 {
		d.now += 5 * time.Second
		d.step(event{kind: tick, id: 1, heardAt: d.now})
		d.wantNothing("bytes come in")
	}
	d.tickWithID(5*time.Second, 2)
	d.wantTransmit(2)
}

// Guarantees: G-0025.3
func TestPeerThatIsNotReadIsNotJudged(t *testing.T) {
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
			t.Fatal("the link was not read")
		}
	}
	congest()
	d.now += 4 * time.Second
	d.stepCurrent(event{kind: writable})
	d.dropEffects()
	d.tickWithID(time.Second, 2)
	d.wantNothing("the link was read for a second only")
	d.tickWithID(4*time.Second, 3)
	d.wantTransmit(3)
}

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
	d.wantNothing("the deadline of the drain is all that counts")
	d.reply(2)
	d.wantSettled(2, Answered, Sent)
	d.wantGrant(1)
	d.wantTransition(Closing, Drained) // a probe without an answer does not hold it up
}

// Guarantees: G-0025.4
func TestProbeIsNotACall(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.wantTransmit(1)
	d.tickWithID(5*time.Second, 2)
	d.want(missed)
	d.wantTransmit(2)
	d.reply(1) // of the probe that was given up
	if fx := d.want(late); fx.cause != TimedOut {
		t.Fatalf("it had ended as %v", fx.cause)
	}
	d.wantGrant(1)
	d.reply(2)
	d.wantGrant(1)
	d.wantNothing("nobody waits for it")
	d.tickWithID(5*time.Second, 3)
	d.wantTransmit(3)
	d.loseLink()
	if d.count(settle) != 0 {
		t.Fatal("the end of a probe was told to somebody")
	}
}

// A probe that a busy link never takes is no miss of the peer's, which was not
// asked, and nobody is told of its refusal.
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
	d.wantNothing("nobody waits for it")
	if d.core.pending.len() != 0 {
		t.Fatal("it is pending still")
	}
	d.now = 6*time.Second + 5*time.Second // 5 s after it was due
	d.step(event{kind: tick, id: 2, random: 0.5})
	d.wantTransmit(2)
}

// Guarantees: G-0025.5
func TestWhichPeersAreWatched(t *testing.T) {
	for name, c := range map[string]struct {
		role     role
		liveness time.Duration
		hearing  bool
		want     time.Duration
	}{
		"a link that says so":                 {initiator, 0, true, defaultLiveness},
		"a link that does not":                {initiator, 0, false, 0},
		"a link that does not, when asked to": {initiator, time.Second, false, time.Second},
		"never":                               {initiator, -1, true, 0},
		"a client":                            {acceptor, time.Second, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, c.role, Options{Liveness: c.liveness, Dialect: cancels{}})
			d.start()
			d.stepCurrent(event{kind: linkOpened, hearing: c.hearing, particulars: &particulars{link: deadLink{}}})
			d.handshaken()
			if got := d.core.liveness.every; got != c.want || (d.core.liveness.dueAt != 0) != (c.want != 0) {
				t.Fatalf("a silence of %v is allowed, and looked at at %v", got, d.core.liveness.dueAt)
			}
		})
	}
}

// A dialect without a probe has no liveness.
//
// Guarantees: G-0025.5
func TestDialectWithoutProbeHasNoLiveness(t *testing.T) {
	d := driveReady(t, Options{Liveness: time.Second})
	d.tickWithID(time.Second, 1)
	d.wantNothing("there is nothing to ask")
	if d.core.deadline() != 0 || d.core.liveness.dueAt != 0 {
		t.Fatal("it is looked at again")
	}
}

// What this side does of itself is no sign of the peer's life.
//
// Guarantees: G-0025.2
func TestOwnDoingsAreNoSignOfLife(t *testing.T) {
	for name, own := range map[string]event{
		"the probe's own stream":   {kind: streamOpened, stream: 4},
		"a stream that is cut":     {kind: streamLost, resumable: true},
		"a link that has room":     {kind: writable},
		"a frame that is too late": {kind: failed, unsent: true, out: new(outboundFrame)},
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

// A sign of life that another deadline's tick brings is not lost.
//
// Guarantees: G-0025.2
func TestSignOfLifeAtAnotherTick(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.dropEffects()
	d.now += time.Second
	d.step(event{kind: tick, heardAt: d.now})
	d.tickWithID(4*time.Second, 2)
	d.wantNothing("it was heard four seconds ago")
}

// Whoever was heard at the very moment of a probe begins anew.
//
// Guarantees: G-0025.1
func TestSignOfLifeResetsMissedProbes(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.tickWithID(5*time.Second, 2) // one is missed
	d.receiveNotification()
	d.tickWithID(5*time.Second, 3)
	d.tickWithID(5*time.Second, 4)
	d.wantState(Ready)
	d.tickWithID(5*time.Second, 5)
	d.wantState(Backoff)
}

// The id of a probe is no call's: what claims to be its progress is dropped.
//
// Guarantees: G-0025.4
func TestProgressOfAProbeIsDropped(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.wantTransmit(1)
	d.stepCurrent(event{kind: progressed, id: 1, frames: 1})
	d.wantGrant(1)
	d.wantNothing("nobody waits for it")
}

// A probe that was given up leaves neither a frame nor a stream behind.
//
// Guarantees: G-0025.4
func TestProbeThatIsGivenUpLeavesNothing(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(5*time.Second, 1)
	d.stepCurrent(event{kind: streamOpened, stream: 4, id: 1})
	d.dropEffects()
	d.tickWithID(5*time.Second, 2)
	d.want(missed)
	if fx := d.want(endStream); fx.stream != 4 {
		t.Fatalf("stream %d was ended", fx.stream)
	}
	probe := d.wantTransmit(2)
	d.busy(probe)
	d.stepCurrent(event{kind: notified, incoming: &Incoming{}, frames: 1})
	d.dropEffects()
	d.now += 5 * time.Second
	d.drain(time.Hour)
	if !d.core.outbound.empty() {
		t.Fatal("its frame waits still")
	}
}

// A tick that comes much too late, since this process was held up, does not
// shorten the time that the peer has to answer by more than a quarter.
//
// Guarantees: G-0025.1
func TestLateTickIsNoFaultOfThePeers(t *testing.T) {
	d := driveWatched(t, Options{})
	d.tickWithID(time.Hour, 1)
	d.wantTransmit(1)
	d.tickWithID(3*time.Second, 2)
	d.wantNothing("it was asked three seconds ago")
	if due := d.core.liveness.dueAt - d.now; due != 750*time.Millisecond {
		t.Fatalf("due in %v", due)
	}
}

// driveOverHTTP is an initiator whose link carries each probe as a request of its own.
func driveOverHTTP(t *testing.T, d Dialect, liveness time.Duration) *driver {
	driven := drive(t, initiator, Options{Dialect: d, Liveness: liveness})
	driven.start()
	driven.stepCurrent(event{kind: linkOpened, hearing: true, costly: true, particulars: &particulars{link: deadLink{}}})
	driven.handshaken()
	driven.dropEffects()
	return driven
}

// countProbes counts the probes of so many minutes, whose answers come at once. The timer
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

// subscribed is a dialect of a program that has subscribed to something.
type subscribed struct {
	cancels
	to bool
}

func (s *subscribed) Awaits() bool { return s.to }

// Guarantees: G-0025.7
func TestAnIdlePeerOverHTTPIsSeldomAsked(t *testing.T) {
	if got := driveOverHTTP(t, cancels{}, 0).countProbes(10); got > 10 || got < 9 {
		t.Errorf("idle: %d probes in 10 minutes", got)
	}
	if got := driveOverHTTP(t, cancels{}, 5*time.Second).countProbes(10); got != 120 {
		t.Errorf("where the program has set 5 s: %d probes in 10 minutes", got)
	}
	waiting := driveOverHTTP(t, cancels{}, 0)
	waiting.call(1, 0)
	if got := waiting.countProbes(10); got != 120 {
		t.Errorf("while a call waits: %d probes in 10 minutes", got)
	}
	waiting.reply(1)
	if got := waiting.countProbes(10); got > 11 {
		t.Errorf("after the call: %d probes in 10 minutes", got)
	}
	s := &subscribed{to: true}
	d := driveOverHTTP(t, s, 0)
	if got := d.countProbes(10); got != 120 {
		t.Errorf("while a subscription waits: %d probes in 10 minutes", got)
	}
	s.to = false
	if got := d.countProbes(10); got > 11 {
		t.Errorf("without it: %d probes in 10 minutes", got)
	}
}

// Whoever begins to wait finds out as soon as on any other link, and no sooner.
//
// Guarantees: G-0025.1, G-0025.7
func TestAPeerThatWasIdleIsWatchedFromTheCallOn(t *testing.T) {
	d := driveOverHTTP(t, cancels{}, 0)
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
		t.Errorf("lost because of %v", d.core.reason)
	}
}

// A peer that does not answer a probe is not given another minute.
//
// Guarantees: G-0025.7
func TestAnIdlePeerThatIsGoneIsFound(t *testing.T) {
	d := driveOverHTTP(t, cancels{}, 0)
	d.tickWithID(5*time.Second, 2)
	d.tickWithID(55*time.Second, 3)
	d.wantTransmit(3)
	d.tickWithID(5*time.Second, 4)
	d.tickWithID(5*time.Second, 5)
	d.wantState(Backoff)
}

// What was heard once is a sign of life once, however often the link is asked.
//
// Guarantees: G-0025.1, G-0025.2
func TestOneSignOfLifeCountsOnce(t *testing.T) {
	d := driveWatched(t, Options{})
	heard := d.now + time.Second
	for n := range 4 {
		d.wantState(Ready)
		d.now = heard + time.Duration(n)*5*time.Second
		d.step(event{kind: tick, random: 0.5, id: int64(n + 1), heardAt: heard})
	}
	d.wantState(Backoff)
}

// Whoever begins to wait brings the next look nearer, and puts off none.
//
// Guarantees: G-0025.7
func TestWaitingPutsOffNoLook(t *testing.T) {
	var l liveness
	l.begin(0, 5*time.Second, time.Minute)
	if l.await(time.Second); l.dueAt != 5*time.Second {
		t.Errorf("the look was put off to %v", l.dueAt)
	}
	if next, _ := l.watch(5*time.Second, false); next != keepWaiting || l.dueAt != time.Minute {
		t.Errorf("a peer that nothing waits for is looked at again after %v", l.dueAt)
	}
	if l.await(10 * time.Second); l.dueAt != 15*time.Second {
		t.Errorf("the next look is at %v", l.dueAt)
	}
	if next, _ := l.watch(15*time.Second, true); next != sendProbe {
		t.Error("it is not probed")
	}
	l.asked = true // and nobody waits any more
	if next, missed := l.watch(20*time.Second, false); next != sendProbe || !missed {
		t.Error("a probe without an answer is not missed once nothing waits")
	}
}
