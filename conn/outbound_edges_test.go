package conn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0007.1
func TestBusyWaitGrowsWithItsDraw(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 5, 0.5: 10, 1: 15} {
		if wait := busyWait(random); wait != want*time.Millisecond {
			t.Errorf("%v waits %v", random, wait)
		}
	}
}

// Guarantees: G-0007.3
func TestOnlyTheNotificationOfTheCallerIsWithdrawn(t *testing.T) {
	for _, leaves := range []int{0, 1} {
		d := driveReady(t, Options{})
		callers := []*call{d.notice(), nil}
		d.busy(d.wantTransmit(0))
		callers[1] = d.notice()
		d.step(event{kind: callLeft, err: context.Canceled, out: outboundFrame{call: callers[leaves]}})
		if fx := d.wantSettled(0, Cancelled, NotSent); fx.call != callers[leaves] {
			t.Fatal("another caller was told")
		}
		d.own(event{kind: writable})
		if out := d.wantTransmit(0); out.call != callers[1-leaves] {
			t.Fatal("the notification of the caller who left is sent")
		}
		d.wantNothing("one of two has left")
	}
}

// Guarantees: G-0003.2
func TestNotificationThatCannotBeSentIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Cause
	}{
		"too large":        {&transport.OversizedError{Limit: 1, Size: 2}, Refused},
		"its way is ended": {transport.ErrClosed, LinkLost},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.notice()
			d.own(event{kind: failed, out: d.wantTransmit(0), err: c.err})
			d.wantSettled(0, c.want, NotSent)
		})
	}
}

// Where no error can be sent either, or nobody waits for one, nothing is.
func TestWhatFailsIsNotAlwaysReplaced(t *testing.T) {
	for name, ev := range map[string]event{
		"a message that is no answer":       {out: outboundFrame{frame: []byte("cancel")}, err: errors.New("no")},
		"one without a way":                 {out: outboundFrame{frame: []byte("cancel")}, err: transport.ErrNoRoute},
		"an answer that has no way to go":   {out: outboundFrame{reply: true, answers: jsonrpc.IntegerID(1)}, err: transport.ErrNoRoute},
		"an answer that is an error itself": {out: outboundFrame{reply: true}, err: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			ev.kind, ev.unsent = failed, true
			d.own(ev)
			d.own(event{kind: writable})
			d.wantNothing("there is nothing to say")
		})
	}
}
