package conn

import (
	"testing"
	"time"
)

// A peer that says when it will be back is not asked before, whatever its losses are
// called.
//
// Guarantees: G-0001.14
func TestACrashLoopHonoursTheDelayAskedFor(t *testing.T) {
	const asked = 10 * time.Minute
	d := drive(t, initiator, Options{})
	d.start()
	for _, want := range []ReasonKind{HandshakeFailed, HandshakeFailed, CrashLooping, CrashLooping} {
		d.open()
		d.forget()
		d.own(event{kind: handshakeFailed, timeout: asked, random: 0.5, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
		if fx := d.wantTransition(Backoff, want); fx.at < d.now+asked {
			t.Fatalf("%s: the next attempt is due after %v, want %v", want, fx.at-d.now, asked)
		}
		d.gone()
		d.atDeadline()
	}
}

// A Wake while the old link closes ends one delay, and none of the later ones.
//
// Guarantees: G-0001.4, G-0001.14
func TestWakeWhileTheLinkClosesEndsOneDelay(t *testing.T) {
	for name, lose := range map[string]func(*driver){
		"lost": func(d *driver) { d.lost() },
		"lost, and the peer has asked for a delay": func(d *driver) {
			d.own(event{kind: linkLost, timeout: time.Minute, random: 0.5, particulars: &particulars{reason: Reason{Kind: LinkBroken}}})
		},
		"handshake failed": func(d *driver) {
			d.own(event{kind: handshakeFailed, random: 0.5, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.lost()
			d.wake()
			d.wantState(Backoff) // a Conn never has two links
			d.gone()
			d.wantState(Starting)
			d.open()
			lose(d)
			due := d.core.retryAt
			d.gone()
			d.wantState(Backoff)
			if due <= d.now || d.core.retryAt != due {
				t.Fatalf("the next attempt was due at %v and is at %v; it is %v", due, d.core.retryAt, d.now)
			}
			d.after(due - d.now - 1)
			d.wantState(Backoff)
			d.after(1)
			d.wantState(Starting)
		})
	}
}
