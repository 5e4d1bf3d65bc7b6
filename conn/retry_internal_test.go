package conn

import (
	"context"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Without hooks, a call and a notification make no allocation for them, and read no clock.
//
// Guarantees: G-0024.2
func TestMissingHooksCostNothing(t *testing.T) {
	for name, hooks := range map[string]telemetry.Hooks{"none": {}, "none teed": telemetry.Tee(telemetry.Hooks{}, telemetry.Hooks{})} {
		c := New(deadTransport{}, Options{Tuning: Tuning{Hooks: hooks}})
		l, ctx := newLoop(&c.record, context.Background()), t.Context()
		notice := &Incoming{Method: "log"}
		allocated := testing.AllocsPerRun(100, func() {
			m := attempts{conn: c, id: 1}
			m.begin(ctx)
			m.tellRetried(Attempt{})
			if err := m.end(outcome{ending: ending{Answered, Sent, nil}}); err != nil || m.began != 0 {
				t.Fatalf("%s: %v, began at %v; want no error and no time", name, err, m.began)
			}
			l.received(notice)
		})
		if allocated > 0 {
			t.Errorf("%s: %v allocations, want none", name, allocated)
		}
	}
}

// An incarnation counts as gone from its loss on, even before the next one has a number.
//
// Guarantees: G-0003.14
func TestLostIncarnationStaysGone(t *testing.T) {
	c := New(deadTransport{}, Options{})
	l := newLoop(&c.record, context.Background())
	l.unpark()
	for _, step := range []struct {
		apply func()
		gone  bool
	}{
		{func() { l.announce(&effect{epoch: 1, eventExtra: new(eventExtra)}) }, false},
		{func() { l.transition(&effect{epoch: 1, eventExtra: &eventExtra{from: Initializing, to: Ready}}) }, false},
		{func() { l.transition(&effect{epoch: 1, eventExtra: &eventExtra{from: Ready, to: Backoff}}) }, true},
		{func() { l.transition(&effect{epoch: 1, eventExtra: &eventExtra{from: Backoff, to: Starting}}) }, true},
		{func() { l.announce(&effect{epoch: 2, eventExtra: new(eventExtra)}) }, true},
	} {
		step.apply()
		if status := c.Status(); c.status.isGone(1) != step.gone || c.status.isGone(2) == (status.Epoch == 2) {
			t.Errorf("in %s, epoch %d: gone(1) is %t, gone(2) is %t; want %t, %t", status.State, status.Epoch, c.status.isGone(1), c.status.isGone(2), step.gone, status.Epoch != 2)
		}
	}
	if err := l.stuck(); err != nil {
		t.Error(err)
	}
}

// A message that is too large for its link is not sent again, also if the link says more about it than that. One that was lost with
// a link that had got too much from its peer is.
func TestTooLargeAlsoIfTheErrorIsWrapped(t *testing.T) {
	tooLarge := &transport.OversizedError{Limit: 1, Size: 2}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"itself":        {tooLarge, true},
		"wrapped":       {fmt.Errorf("sending to x: %w", tooLarge), true},
		"of the link":   {Reason{Kind: Oversized, Err: tooLarge}, false},
		"another":       {transport.ErrClosed, false},
		"none":          {nil, false},
		"link, wrapped": {fmt.Errorf("x: %w", Reason{Kind: Oversized, Err: tooLarge}), false},
	} {
		if got := isTooLarge(c.err); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
