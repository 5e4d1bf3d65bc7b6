package conn

import (
	"context"
	"testing"
	"time"
)

// Guarantees: G-0003.13
func TestProgressMovesOneDeadlineBehindAnother(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.own(event{kind: callMade, timeout: 10 * time.Second, limit: time.Minute, restarts: true, out: d.frame(1)})
	d.call(2, 12*time.Second)
	d.now += 5 * time.Second
	d.own(event{kind: progressed, id: 1})
	d.forget()
	d.atDeadline()
	d.wantSettled(2, TimedOut, Unknown)
	d.wantNothing("the other has begun anew")
	d.atDeadline()
	d.wantSettled(1, TimedOut, Unknown)
}

// Guarantees: G-0003.13
func TestProgressGivesNoTimeoutToACallWithoutOne(t *testing.T) {
	d := driveReady(t, Options{})
	d.calls[1] = new(call)
	d.own(event{kind: callMade, limit: time.Minute, restarts: true, out: d.frame(1)})
	d.forget()
	d.own(event{kind: progressed, id: 1})
	d.want(progress)
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("it is due at %v", due)
	}
}

// Guarantees: G-0003.7
func TestPeerIsNotToldOfWhatItHasNotGot(t *testing.T) {
	d := driveReady(t, Options{Dialect: cancels{}})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.step(event{kind: callLeft, id: 1, err: context.Canceled})
	d.wantSettled(1, Cancelled, NotSent)
	d.own(event{kind: writable})
	d.wantNothing("no byte of it left")
}

func TestWhatHasEndedIsNotKeptAlive(t *testing.T) {
	d := driveReady(t, Options{})
	for id := range int64(maxFree + 1) {
		d.call(id+1, time.Minute)
	}
	for id := range int64(maxFree + 1) {
		d.reply(id + 1)
	}
	p := &d.core.pending
	if len(p.free) != maxFree {
		t.Errorf("%d requests are spare, want %d", len(p.free), maxFree)
	}
	for _, spare := range p.free {
		if *spare != (request{}) {
			t.Fatalf("a spare request holds %+v", *spare)
		}
	}
	for _, spare := range p.byDeadline[:cap(p.byDeadline)] {
		if spare != nil {
			t.Fatalf("request %d is still among the deadlines", spare.id)
		}
	}
}
