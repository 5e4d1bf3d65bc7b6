package conn

import (
	"testing"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A hook that is nil costs nothing: neither the time of day nor an allocation.
//
// Guarantees: G-0024.2
func TestHooksThatAreNotThereCostNothing(t *testing.T) {
	for name, hooks := range map[string]telemetry.Hooks{"none": {}, "none teed": telemetry.Tee(telemetry.Hooks{}, telemetry.Hooks{})} {
		c := New(opener{}, Options{Hooks: hooks})
		l, ctx := newLoop(c), t.Context()
		notice := &Incoming{Method: "log"}
		allocated := testing.AllocsPerRun(100, func() {
			m := making{conn: c, id: 1}
			m.begin(ctx)
			m.retried(Attempt{})
			if err := m.end(outcome{ending: ending{Answered, Sent, nil}}); err != nil || !m.began.IsZero() {
				t.Fatalf("%s: %v, begun at %v", name, err, m.began)
			}
			l.received(notice)
		})
		if allocated > 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}
