package main

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/telemetry"
)

// TestCollectionSees checks that a collection detects counts that do not add up, counts
// that fall, and calls that have ended only for their callers.
func TestCollectionSees(t *testing.T) {
	answered := func(n uint64) []telemetry.Settled {
		return []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: n}}
	}
	for name, test := range map[string]struct {
		samples        []telemetry.ConnSample // of one connection, one after the other
		made, reported uint64
		want           string
	}{
		"good":        {samples: []telemetry.ConnSample{{Calls: 2, InFlight: 1, Settled: answered(1)}, {Calls: 2, Settled: answered(2)}}, made: 2, reported: 1},
		"one missing": {samples: []telemetry.ConnSample{{Calls: 2, Settled: answered(1)}}, made: 2, want: "made 2 calls, of which 1 have ended and 0 are in flight"},
		"never made":  {samples: []telemetry.ConnSample{{Calls: 2, Settled: answered(2)}}, made: 1, want: "between 1 and 1 were made"},
		"not counted": {samples: []telemetry.ConnSample{{Calls: 1, Settled: answered(1)}}, made: 2, want: "between 2 and 2 were made"},
		"ended":       {samples: []telemetry.ConnSample{{Calls: 2, InFlight: 1, Settled: answered(1)}}, made: 2, reported: 2, want: "2 callers have an outcome"},
		"falls":       {samples: []telemetry.ConnSample{{BytesIn: 2}, {BytesIn: 1}}, want: "collection 2: one had 2 bytes in, and then 1"},
	} {
		t.Run(name, func(t *testing.T) {
			next := 0
			c := collection{
				samples: func() iter.Seq[telemetry.Sample] {
					now := &test.samples[next]
					next++
					return slices.Values([]telemetry.Sample{{Name: "s", Supervisor: &telemetry.SupervisorSample{}}, {Name: "one", Conn: now}})
				},
				made: func() uint64 { return test.made }, reported: func() uint64 { return test.reported },
				before: map[string]*telemetry.ConnSample{},
			}
			for range test.samples {
				c.collect()
			}
			switch {
			case test.want == "" && c.violation != nil:
				t.Error(c.violation)
			case test.want != "" && (c.violation == nil || !strings.Contains(c.violation.Error(), test.want)):
				t.Errorf("got %v, want %q", c.violation, test.want)
			}
		})
	}
}
