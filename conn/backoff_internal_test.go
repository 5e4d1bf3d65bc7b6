package conn

import (
	"testing"
	"time"
)

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
		d.stepCurrent(event{kind: handshakeFailed, timeout: asked, random: 0.5, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
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
			d.stepCurrent(event{kind: linkLost, timeout: time.Minute, random: 0.5, particulars: &particulars{reason: Reason{Kind: LinkBroken}}})
		},
		"handshake failed": func(d *driver) {
			d.stepCurrent(event{kind: handshakeFailed, random: 0.5, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
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
