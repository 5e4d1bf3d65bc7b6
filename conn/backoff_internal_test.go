package conn

import (
	"testing"
	"time"
)

// After a proven incarnation the first attempt is made at once, within 100 ms. The next ones wait
// for 1 s, 2 s, … A peer that is lost before it is proven gets no attempt at once.
//
// Guarantees: G-0001.4, G-0001.8, G-0001.20
func TestAProvenPeerIsCalledAgainAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		random  float64
		ready   time.Duration
		want    []time.Duration
	}{
		"proven":                       {Options{}, 0, 30 * time.Second, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second}},
		"proven, the longest jitter":   {Options{}, 1, 30 * time.Second, []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second}},
		"proven, with short delays":    {Options{Tuning: Tuning{BackoffMin: 10 * time.Millisecond}}, 1, 30 * time.Second, []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}},
		"not proven":                   {Options{}, 0, 30*time.Second - 1, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		"not proven, never long ready": {Options{}, 0, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.BackoffJitter = 1e-9
			d := driveReady(t, c.options)
			d.now += c.ready
			for i, want := range c.want {
				lost := event{kind: linkLost, random: c.random, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}}
				if i > 0 { // each of the next incarnations is lost immediately
					d.open()
				}
				d.stepCurrent(lost)
				began := d.now
				d.linkGone()
				d.advanceToDeadline()
				if waited := (d.now - began).Round(time.Millisecond); waited != want {
					t.Fatalf("attempt %d after the loss comes after %v, want %v", i+1, waited, want)
				}
				d.wantState(Starting)
			}
		})
	}
}

// If the peer asks for a delay, the next attempt is not made before it has passed, also when the
// losses count as a crash loop.
//
// Guarantees: G-0001.14
func TestACrashLoopHonoursTheDelayAskedFor(t *testing.T) {
	const asked = 10 * time.Minute
	d := drive(t, initiator, Options{})
	d.start()
	for _, want := range []ReasonKind{HandshakeFailed, HandshakeFailed, CrashLooping, CrashLooping} {
		d.open()
		d.dropEffects()
		d.stepCurrent(event{kind: handshakeFailed, timeout: asked, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}})
		if fx := d.wantTransition(Backoff, want); fx.at < d.now+asked {
			t.Fatalf("%s: the next attempt is due after %v, want %v", want, fx.at-d.now, asked)
		}
		d.linkGone()
		d.advanceToDeadline()
	}
}

// A Wake while the old link still closes ends the present delay, but none of the later ones.
//
// Guarantees: G-0001.4, G-0001.14
func TestWakeWhileTheLinkClosesEndsOneDelay(t *testing.T) {
	for name, lose := range map[string]func(*driver){
		"lost": func(d *driver) { d.loseLink() },
		"lost, and the peer has asked for a delay": func(d *driver) {
			d.stepCurrent(event{kind: linkLost, timeout: time.Minute, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}})
		},
		"handshake failed": func(d *driver) {
			d.stepCurrent(event{kind: handshakeFailed, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.loseLink()
			d.wake()
			d.wantState(Backoff) // a Conn never has two links
			d.linkGone()
			d.wantState(Starting)
			d.open()
			lose(d)
			due := d.core.retryAt
			d.linkGone()
			d.wantState(Backoff)
			if due <= d.now || d.core.retryAt != due {
				t.Fatalf("now %v: the next attempt was due at %v, then at %v", d.now, due, d.core.retryAt)
			}
			d.advance(due - d.now - 1)
			d.wantState(Backoff)
			d.advance(1)
			d.wantState(Starting)
		})
	}
}
