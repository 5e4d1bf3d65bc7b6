package conn

import (
	"errors"
	"testing"
	"time"
)

// An initiator opens a link, runs the handshake, and is ready when that has succeeded. It then has
// no deadline.
//
// Guarantees: G-0001.2
func TestInitiatorBecomesReady(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	if fx := d.want(openLink); fx.epoch != 1 {
		t.Fatalf("the first epoch is %d, want 1", fx.epoch)
	}
	d.open()
	d.wantTransition(Initializing, LinkOpened)
	d.want(bind)
	d.wantGrant(1)
	d.want(handshake)
	d.handshaken()
	d.wantTransition(Ready, Handshaken)
	d.wantNothing("the handshake is done")
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("an idle Conn has a deadline at %v, want none", due)
	}
}

// An acceptor runs no handshake: it is ready once its link is attached.
//
// Guarantees: G-0001.2
func TestAcceptorIsReadyOnceAttached(t *testing.T) {
	d := drive(t, acceptor, Options{})
	d.start()
	d.want(bind)
	d.wantGrant(1)
	d.wantTransition(Ready, Started)
	d.wantNothing("an acceptor runs no handshake")
}

// An acceptor that loses its link settles its calls and closes.
//
// Guarantees: G-0001.5
func TestAcceptorClosesWithItsLink(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.call(1, 0)
	d.wantTransmit(1)
	d.loseLink()
	d.wantTransition(Closing, LinkBroken)
	d.want(endTasks)
	d.wantSettled(1, LinkLost, Unknown)
	d.want(closeLink)
	d.linkGone()
	d.want(terminate)
}

// InitTimeout is the time for opening the link and the handshake together.
//
// Guarantees: G-0001.3
func TestInitTimeoutCoversStartingAndInitializing(t *testing.T) {
	for name, reach := range map[string]func(*driver){
		"starting":     func(d *driver) { d.start() },
		"initializing": func(d *driver) { d.start(); d.now += 9 * time.Second; d.open() },
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, initiator, Options{})
			reach(d)
			d.dropEffects()
			began := time.Second
			d.advanceToDeadline()
			if d.now != began+10*time.Second {
				t.Fatalf("the timeout fired %v after the start, want 10s", d.now-began)
			}
			d.wantTransition(Backoff, InitTimedOut)
		})
	}
}

// After each InitTimedOut the next attempt has twice the time, up to two minutes. So a peer that
// needs 70 s to start is ready at the fourth attempt. Being ready resets the time.
//
// Guarantees: G-0001.3, G-0001.17
func TestInitTimeoutDoublesUntilReady(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	for _, want := range []time.Duration{10, 20, 40, 80, 120, 120} {
		began := d.now
		d.dropEffects()
		d.advanceToDeadline()
		d.wantState(Backoff)
		if took := d.now - began; took != want*time.Second {
			t.Fatalf("an attempt took %v, want %v", took, want*time.Second)
		}
		d.wake()
	}
	d.open()
	d.handshaken()
	d.loseLink()
	d.linkGone()
	d.wake()
	if due := d.core.initDue - d.now; due != 10*time.Second {
		t.Fatalf("after Ready an attempt has %v, want 10s", due)
	}
}

// A process that has sent no message may take a minute, and twice that after a timeout. After its
// first message the rest of the handshake has 10 s, and so has every later handshake. A malformed
// line, such as a banner, is no message.
//
// Guarantees: G-0001.3, G-0001.17, G-0001.21
func TestAProcessMayInstallItselfBeforeItsFirstMessage(t *testing.T) {
	installing := func(o Options) *driver {
		d := drive(t, initiator, o)
		d.core.allowInstalling()
		d.start()
		d.open()
		return d
	}
	expires := func(d *driver, when string, want time.Duration) {
		t.Helper()
		if due := d.core.initDue - d.now; due != want {
			t.Fatalf("%s the handshake may take %v more, want %v", when, due, want)
		}
	}
	d := installing(Options{})
	expires(d, "at first", time.Minute)
	d.stepCurrent(event{kind: malformed, frames: 1, size: 10, err: errGone})
	expires(d, "after a banner", time.Minute)
	d.advanceToDeadline()
	d.wantState(Backoff)
	d.linkGone()
	d.wake()
	expires(d, "after a timeout", 2*time.Minute)
	d.open()
	d.now += 20 * time.Second
	d.stepCurrent(event{kind: notified, frames: 1, incoming: new(Incoming)})
	expires(d, "after the first message", 10*time.Second)
	d.advance(5 * time.Second)
	d.stepCurrent(event{kind: notified, frames: 1, incoming: new(Incoming)})
	expires(d, "after the second message", 5*time.Second)
	d.handshaken()
	d.loseLink()
	d.linkGone()
	d.wake()
	expires(d, "after being ready", 10*time.Second)

	d = installing(Options{})
	d.now += 55 * time.Second
	d.stepCurrent(event{kind: notified, frames: 1, incoming: new(Incoming)})
	expires(d, "after a late first message", 10*time.Second)

	expires(installing(Options{Tuning: Tuning{InitTimeout: 10 * time.Second}}), "if the program has set InitTimeout,", 10*time.Second)
}

// Other failures than a timeout do not change the time of the next attempt.
//
// Guarantees: G-0001.17
func TestOnlyATimeoutExtendsTheNextAttempt(t *testing.T) {
	d := drive(t, initiator, Options{Tuning: Tuning{InitTimeout: 3 * time.Minute}})
	d.start()
	d.stepCurrent(event{kind: openFailed, eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}})
	d.wake()
	if due := d.core.initDue - d.now; due != 3*time.Minute {
		t.Fatalf("after a refusal an attempt has %v, want 3m", due)
	}
	d.advanceToDeadline()
	d.wake()
	if due := d.core.initDue - d.now; due != 3*time.Minute {
		t.Fatalf("after a timeout of more than 2 min an attempt has %v, want 3m", due)
	}
}

// A link that opens after its incarnation has ended is closed, and changes no state.
//
// Guarantees: G-0001.6, G-0009.4
func TestUnwantedLinkIsClosed(t *testing.T) {
	for name, reach := range map[string]func(*driver){
		"after stop":          func(d *driver) { d.stop() },
		"in backoff":          func(d *driver) { d.advance(10 * time.Second) },
		"in the next attempt": func(d *driver) { d.advance(10 * time.Second); d.wake() },
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, initiator, Options{})
			d.start()
			reach(d)
			state := d.core.state()
			d.dropEffects()
			d.step(event{kind: linkOpened, epoch: 1, eventExtra: &eventExtra{link: deadLink{}}})
			if fx := d.want(closeLink); fx.link == nil || fx.epoch != 1 {
				t.Fatalf("got %+v, want the link of epoch 1 closed", fx)
			}
			d.wantNothing("only the late link is closed")
			d.wantState(state)
		})
	}
}

// Events of an earlier incarnation change nothing.
//
// Guarantees: G-0001.6
func TestEventsOfAnOldIncarnationAreIgnored(t *testing.T) {
	d := driveReady(t, Options{})
	d.loseLink()
	d.linkGone()
	d.advanceToDeadline()
	d.open()
	d.handshaken()
	d.call(1, 0)
	d.dropEffects()
	for _, ev := range []event{
		{kind: linkLost, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}},
		{kind: handshakeFailed},
		{kind: openFailed},
		{kind: replied, id: 1, frames: 1},
		{kind: requested, incoming: incomingRequest(1), frames: 1},
		{kind: malformed, frames: 1, err: errors.New("bad")},
		{kind: writable},
		{kind: linkGone},
	} {
		ev.epoch = 1
		d.step(ev)
	}
	d.wantNothing("all events are of epoch 1")
	d.wantState(Ready)
}

// After a loss or Stop, messages that still come in on the old link start nothing: the answer
// to a request would be sent on the next link.
//
// Guarantees: G-0001.6
func TestNothingStartsAfterTheLoss(t *testing.T) {
	for name, end := range map[string]func(*driver){
		"backoff": func(d *driver) { d.loseLink() },
		"closing": func(d *driver) { d.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			end(d)
			d.dropEffects()
			d.request(1)
			d.stepCurrent(event{kind: probed, frames: 1, out: &outboundFrame{reply: true}})
			d.stepCurrent(event{kind: notified, frames: 1, incoming: &Incoming{}})
			d.stepCurrent(event{kind: malformed, frames: 1, err: errors.New("bad")})
			d.stepCurrent(event{kind: linkEnded})
			d.stepCurrent(event{kind: writable})
			d.wantNothing("there is no link")
			if n := d.core.incoming.len(); n != 0 {
				t.Fatalf("%d requests are held for the next incarnation, want none", n)
			}
		})
	}
}

// After a loss, the next attempt begins when the delay has passed, and not earlier.
//
// Guarantees: G-0001.4
func TestRetryWaitsForItsDelay(t *testing.T) {
	d := driveReady(t, Options{})
	lostAt := d.now
	d.loseLink()
	fx := d.wantTransition(Backoff, LinkBroken)
	if wait := fx.at - lostAt; wait < time.Second || wait > 1200*time.Millisecond {
		t.Fatalf("the first delay is %v, want 1s to 1.2s", wait)
	}
	d.linkGone()
	d.dropEffects()
	d.advance(fx.at - d.now - 1)
	d.wantNothing("it is too early")
	d.advance(1)
	d.wantTransition(Starting, RetryDue)
	if fx := d.want(openLink); fx.epoch != 2 {
		t.Fatalf("the second epoch is %d, want 2", fx.epoch)
	}
}

// Wake ends a backoff, and does nothing in other states.
//
// Guarantees: G-0001.4
func TestWakeEndsABackoffAndNothingElse(t *testing.T) {
	d := driveReady(t, Options{})
	d.wake()
	d.wantNothing("it is already ready")
	d.loseLink()
	d.linkGone()
	d.dropEffects()
	d.wake()
	d.wantTransition(Starting, Woken)
	d.want(openLink)
	d.wake()
	d.wantNothing("it is already starting")
}

// A new link is opened only when the old one is closed, so that a server's process never runs twice.
//
// Guarantees: G-0001.7
func TestOneLinkAtATime(t *testing.T) {
	d := driveReady(t, Options{})
	d.loseLink()
	d.dropEffects()
	d.wake()
	d.wake()
	d.wantNothing("the old link is still closing")
	d.linkGone()
	d.wantTransition(Starting, Woken)
	d.want(openLink)
}

// A link that does not close within its grace no longer holds up the next attempt.
//
// Guarantees: G-0001.7
func TestLinkThatDoesNotCloseIsAbandoned(t *testing.T) {
	d := driveReady(t, Options{})
	d.loseLink()
	d.dropEffects()
	d.wake()
	d.advanceToDeadline()
	d.wantTransition(Starting, Woken)
	d.stop()
	d.dropEffects()
	d.linkGone()
	d.wantNothing("the core has already ended")
}

// Three losses in a row of incarnations that were not ready for 30 s count as a crash loop.
//
// Guarantees: G-0001.8
func TestThreeUnprovenLossesAreACrashLoop(t *testing.T) {
	d := driveReady(t, Options{})
	d.now += 30 * time.Second // now the incarnation is proven
	for _, want := range []ReasonKind{LinkBroken, LinkBroken, LinkBroken, CrashLooping, CrashLooping} {
		d.loseLink()
		d.wantTransition(Backoff, want)
		d.linkGone()
		d.advanceToDeadline()
		d.open()
		d.handshaken()
		d.dropEffects()
	}
	d.now += 30 * time.Second
	d.loseLink()
	d.wantTransition(Backoff, LinkBroken)
}

// The delay doubles with each loss, up to 30 s, until an incarnation was ready for 30 s. After that
// one the first attempt is made at once, and the delays start again.
//
// Guarantees: G-0001.8, G-0001.20
func TestDelaysGrowUntilTheConnHasProvedItself(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{BackoffJitter: 1e-9}})
	wait := func() time.Duration {
		d.loseLink()
		began := d.now
		d.linkGone()
		d.advanceToDeadline()
		waited := d.now - began
		d.open()
		d.handshaken()
		return waited.Round(time.Millisecond)
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		d.now += 30*time.Second - 1 // not long enough
		if got := wait(); got != want*time.Second {
			t.Fatalf("waited %v, want %v", got, want*time.Second)
		}
	}
	d.now += 30 * time.Second
	for _, want := range []time.Duration{50 * time.Millisecond, time.Second, 2 * time.Second} {
		if got := wait(); got != want {
			t.Fatalf("waited %v after a proven incarnation, want %v", got, want)
		}
	}
}

// A failure that a retry will hardly cure is retried after BackoffMax.
//
// Guarantees: G-0001.9
func TestPermanentFailureIsRetriedRarely(t *testing.T) {
	for _, kind := range []ReasonKind{ExecutableMissing, Incompatible, AuthRequired} {
		d := drive(t, initiator, Options{})
		d.start()
		d.want(openLink)
		d.stepCurrent(event{kind: openFailed, eventExtra: &eventExtra{reason: Reason{Kind: kind}}})
		if fx := d.wantTransition(Backoff, kind); fx.at-d.now != 30*time.Second {
			t.Errorf("%s is retried after %v, want 30s", kind, fx.at-d.now)
		}
	}
}

// If Options.Final returns true for the reason of a loss, the Conn closes.
func TestFinalReasonCloses(t *testing.T) {
	d := drive(t, initiator, Options{Tuning: Tuning{Final: func(why Reason) bool { return why.Kind == Incompatible }}})
	d.start()
	d.open()
	d.dropEffects()
	d.stepCurrent(event{kind: handshakeFailed, eventExtra: &eventExtra{reason: Reason{Kind: Incompatible}}})
	d.wantTransition(Closing, Incompatible)
}

// Stop closes the Conn from every state, and it terminates once.
//
// Guarantees: G-0009.2
func TestStopFromEveryState(t *testing.T) {
	for state, reach := range map[State]func(*driver){
		Starting:     func(d *driver) { d.start() },
		Initializing: func(d *driver) { d.start(); d.open() },
		Ready:        func(d *driver) { d.start(); d.open(); d.handshaken() },
		Backoff:      func(d *driver) { d.start(); d.open(); d.loseLink(); d.linkGone() },
		Closing:      func(d *driver) { d.start(); d.open(); d.stop(); d.linkGone() },
	} {
		t.Run(string(state), func(t *testing.T) {
			d := drive(t, initiator, Options{})
			reach(d)
			d.wantState(state)
			d.stop()
			d.stop()
			d.wantState(Closing)
			d.linkGone()
			if finished := d.count(terminate); finished != 1 {
				t.Fatalf("the core terminated %d times, want 1", finished)
			}
			d.dropEffects()
			d.wantNoDeadline()
		})
	}
}

func (d *driver) wantNoDeadline() {
	d.t.Helper()
	if due := d.core.deadline(); due != 0 && due != d.core.tombstones.sweepAt {
		d.t.Fatalf("a closed Conn has a deadline at %v, want none", due)
	}
}

// After Stop, the core waits for the link only as long as its grace.
//
// Guarantees: G-0009.5
func TestStopDoesNotWaitForALinkForEver(t *testing.T) {
	d := driveReady(t, Options{})
	d.stop()
	d.dropEffects()
	d.advanceToDeadline()
	if waited := d.now - time.Second; waited != 200*time.Millisecond {
		t.Fatalf("the core waited %v, want 200ms", waited)
	}
	d.want(terminate)
}

// The link is closed once, however often Stop is called.
func TestManyStopsCloseTheLinkOnce(t *testing.T) {
	d := driveReady(t, Options{})
	for range 100 {
		d.stop()
	}
	if n := d.count(closeLink); n != 1 {
		t.Fatalf("the link was closed %d times, want 1", n)
	}
}

// If the peer asks for a delay that is longer than the backoff, the next attempt waits that long,
// unless Wake is called. A shorter one does not shorten the backoff.
//
// Guarantees: G-0001.14
func TestThePeerMayAskForALongerDelay(t *testing.T) {
	d := drive(t, initiator, Options{Tuning: Tuning{BackoffMin: time.Second}})
	d.start()
	d.open()
	d.stepCurrent(event{kind: handshakeFailed, timeout: 5 * time.Minute, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}})
	d.linkGone()
	if wait := d.core.retryAt - d.now; wait != 5*time.Minute {
		t.Fatalf("the next attempt is in %v, want 5m", wait)
	}
	d.wake()
	d.wantState(Starting)
	d.stepCurrent(event{kind: openFailed, timeout: time.Millisecond, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}})
	if wait := d.core.retryAt - d.now; wait < 2*time.Second {
		t.Fatalf("after a short delay was asked for, the next attempt is in %v, want 2s at least", wait)
	}
}

// The core panics on an event of an unknown kind: if it ignored the event, a caller could wait for ever.
func TestUnknownEventPanics(t *testing.T) {
	for name, kind := range map[string]eventKind{"of the lifecycle": 0, "of the traffic": overdue} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			defer func() {
				if recover() == nil {
					t.Error("the event was ignored, want a panic")
				}
			}()
			d.stepCurrent(event{kind: kind})
		})
	}
}

// The link of an acceptor has epoch 1.
//
// Guarantees: G-0001.2
func TestAcceptorsLinkIsOfTheFirstEpoch(t *testing.T) {
	d := drive(t, acceptor, Options{})
	d.start()
	if fx := d.want(bind); fx.epoch != 1 {
		t.Fatalf("the first epoch is %d, want 1", fx.epoch)
	}
}

// receiveMalformed lets malformed frames come in.
func (d *driver) receiveMalformed(frames int) {
	for range frames {
		d.stepCurrent(event{kind: malformed, frames: 1, err: errors.New("bad")})
	}
}

// Only a valid frame resets the count of malformed frames in a row, and no other event.
//
// Guarantees: G-0001.12
func TestOnlyAFrameEndsARunOfMalformedOnes(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxMalformed: 3}})
	d.receiveMalformed(2)
	d.stepCurrent(event{kind: writable})
	d.receiveMalformed(1)
	d.wantState(Backoff)
}

// A new link begins with no malformed frames.
//
// Guarantees: G-0001.12
func TestMalformedFramesAreCountedPerLink(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxMalformed: 3}})
	d.receiveMalformed(2)
	d.loseLink()
	d.linkGone()
	d.wake()
	d.open()
	d.handshaken()
	d.receiveMalformed(2)
	d.wantState(Ready)
	d.receiveMalformed(1)
	d.wantState(Backoff)
}

// When the peer's input ends, an initiator waits for the loss of the link before it settles
// calls, since an answer may still come in.
func TestInitiatorWaitsForTheLoss(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.dropEffects()
	d.stepCurrent(event{kind: linkEnded})
	d.wantNothing("the loss has not been reported yet")
	d.reply(1)
	d.wantSettled(1, Answered, Sent)
}

// A notification whose frame the link returns after the loss is settled as not sent.
//
// Guarantees: G-0003.1
func TestFrameThatComesBackAfterTheLossEndsItsNotification(t *testing.T) {
	d := driveReady(t, Options{})
	caller := d.sendNotification()
	out := d.wantTransmit(0)
	d.loseLink()
	d.dropEffects()
	d.busy(out)
	if fx := d.wantSettled(0, LinkLost, NotSent); fx.call != caller {
		t.Fatal("another caller was settled")
	}
}

// After a final loss of a ready link, the Conn closes once and has no deadline.
func TestFinalReasonClosesOnce(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{Final: func(Reason) bool { return true }}})
	d.loseLink()
	d.wantTransition(Closing, LinkBroken)
	d.want(endTasks)
	d.want(closeLink)
	d.wantNothing("it is already closing")
	d.linkGone()
	d.wantNoDeadline()
}

// Only time in which the incarnation itself was ready proves it. An attempt that failed late is not proven.
//
// Guarantees: G-0001.8
func TestOnlyBeingReadyProvesAConn(t *testing.T) {
	d := driveReady(t, Options{})
	d.loseLink()
	for _, want := range []ReasonKind{OpenFailed, CrashLooping} {
		d.linkGone()
		d.wake()
		d.dropEffects()
		d.now += time.Hour
		d.stepCurrent(event{kind: openFailed, eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}})
		d.wantTransition(Backoff, want)
	}
}

// A call and its answer allocate nothing in the core once its memory is allocated.
//
// Guarantees: G-0003.8
func TestCallAllocatesNothingInTheCore(t *testing.T) {
	d := driveReady(t, Options{})
	caller, id := new(call), int64(0)
	made := event{kind: callMade, timeout: time.Minute, epoch: d.core.epoch, out: new(outboundFrame)}
	answered := event{kind: replied, frames: 1, epoch: d.core.epoch, payload: []byte("{}")}
	once := func() {
		id++
		*made.out = outboundFrame{id: id, call: caller}
		answered.id = id
		d.core.step(d.now, &made)
		d.core.step(d.now, &answered)
	}
	if n := testing.AllocsPerRun(1000, once); n != 0 {
		t.Fatalf("%v allocations, want none", n)
	}
}
