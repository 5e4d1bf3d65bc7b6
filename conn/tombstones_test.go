package conn

import (
	"testing"
	"time"
)

// Guarantees: G-0005.1, G-0005.2
func TestLateReplyIsCountedNotDelivered(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.atDeadline()
	d.forget()
	for range 2 {
		d.reply(1)
		if fx := d.want(late); fx.id != 1 || fx.cause != TimedOut {
			t.Fatalf("got %+v", fx)
		}
		d.wantGrant(1)
	}
	d.reply(2)
	if fx := d.want(unknown); fx.id != 2 {
		t.Fatalf("got %+v", fx)
	}
}

// Guarantees: G-0005.2
func TestIdsNeverIssuedAreUnknown(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(5, 0)
	d.forget()
	for _, id := range []int64{0, -1, 6, 1 << 62} {
		d.reply(id)
		d.want(unknown)
		d.wantGrant(1)
	}
}

// Guarantees: G-0005.2
func TestSecondAnswerIsLate(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.reply(1)
	d.forget()
	d.reply(1)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatalf("what was answered left a tombstone: %+v", fx)
	}
}

// Guarantees: G-0005.3
func TestTombstoneDecays(t *testing.T) {
	d := driveReady(t, Options{TombstoneSweep: time.Hour})
	d.call(1, time.Second)
	d.atDeadline()
	d.forget()
	for _, c := range []struct {
		wait time.Duration
		want Cause
	}{{75*time.Second - 1, TimedOut}, {1, 0}} {
		d.now += c.wait
		d.reply(1)
		if fx := d.want(late); fx.cause != c.want {
			t.Fatalf("after %v it is remembered as %q", d.now, fx.cause)
		}
		d.forget()
	}
}

// Guarantees: G-0005.3
func TestSweepEmptiesTheGraveyard(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, time.Second)
	d.atDeadline()
	died := d.now
	d.forget()
	for range 2 {
		d.atDeadline()
	}
	if swept := d.now - died; swept != 2*time.Minute {
		t.Fatalf("it was swept after %v", swept)
	}
	if due := d.core.deadline(); due != 0 || d.core.tombstones.len() != 0 {
		t.Fatalf("an empty graveyard wants a sweep at %v", due)
	}
	d.wantNothing("a sweep is nobody's business")
}

// Guarantees: G-0005.4
func TestGraveyardIsBounded(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(maxTombstones + 10) {
		d.call(id+1, 0)
	}
	d.lost()
	if n := d.core.tombstones.len(); n != maxTombstones {
		t.Fatalf("%d tombstones", n)
	}
	d.forget()
	d.reply(10)
	if fx := d.want(late); fx.cause != 0 {
		t.Fatal("the oldest should have gone first")
	}
	d.reply(11)
	if fx := d.want(late); fx.cause != LinkLost {
		t.Fatal("the eleventh should be here still")
	}
}
