package conn

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A hook that is nil costs nothing: neither a look at the clock nor an allocation.
//
// Guarantees: G-0024.2
func TestHooksThatAreNotThereCostNothing(t *testing.T) {
	for name, hooks := range map[string]telemetry.Hooks{"none": {}, "none teed": telemetry.Tee(telemetry.Hooks{}, telemetry.Hooks{})} {
		c := New(deadTransport{}, Options{Hooks: hooks})
		l, ctx := newLoop(c, context.Background()), t.Context()
		notice := &Incoming{Method: "log"}
		allocated := testing.AllocsPerRun(100, func() {
			m := attempts{conn: c, id: 1}
			m.begin(ctx)
			m.tellRetried(Attempt{})
			if err := m.end(outcome{ending: ending{Answered, Sent, nil}}); err != nil || m.began != 0 {
				t.Fatalf("%s: %v, begun at %v", name, err, m.began)
			}
			l.received(notice)
		})
		if allocated > 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// An incarnation that was lost is gone from that moment on, also while the next
// has no number yet.
//
// Guarantees: G-0003.14
func TestLostIncarnationStaysGone(t *testing.T) {
	c := New(deadTransport{}, Options{})
	l := newLoop(c, context.Background())
	l.unpark()
	for _, moment := range []struct {
		passes func()
		gone   bool
	}{
		{func() { l.announce(&effect{epoch: 1, particulars: new(particulars)}) }, false},
		{func() { l.transition(&effect{epoch: 1, particulars: &particulars{from: Initializing, to: Ready}}) }, false},
		{func() { l.transition(&effect{epoch: 1, particulars: &particulars{from: Ready, to: Backoff}}) }, true},
		{func() { l.transition(&effect{epoch: 1, particulars: &particulars{from: Backoff, to: Starting}}) }, true},
		{func() { l.announce(&effect{epoch: 2, particulars: new(particulars)}) }, true},
	} {
		moment.passes()
		if status := c.Status(); c.status.isGone(1) != moment.gone || c.status.isGone(2) == (status.Epoch == 2) {
			t.Errorf("in %s, epoch %d: the first is gone %t, the second %t", status.State, status.Epoch, c.status.isGone(1), c.status.isGone(2))
		}
	}
	if err := l.stuck(); err != nil {
		t.Error(err)
	}
}
