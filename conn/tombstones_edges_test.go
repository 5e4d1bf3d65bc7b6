package conn

import (
	"context"
	"testing"
	"time"
)

// bury leaves a tombstone.
func (d *driver) bury(id int64) {
	d.call(id, 0)
	d.step(event{kind: callLeft, id: id, err: context.Canceled})
	d.forget()
}

// Guarantees: G-0005.3
func TestSweepIsNeitherEarlyNorPutOff(t *testing.T) {
	d := driveReady(t, Options{TombstoneSweep: 75 * time.Second}) // as long as a tombstone lives
	d.bury(1)
	due := d.now + 75*time.Second
	if got := d.core.deadline(); got != due {
		t.Fatalf("the sweep is due at %v, want %v", got, due)
	}
	d.after(30 * time.Second) // a tick of another's
	if got := d.core.deadline(); got != due {
		t.Fatalf("after a tick the sweep is due at %v, want %v", got, due)
	}
	d.atDeadline()
	if n := d.core.tombstones.len(); n != 0 || d.core.deadline() != 0 {
		t.Fatalf("%d tombstones are left", n)
	}
}
