package streamable

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Guarantees: G-0024.10
func TestStatsOfAHandler(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 1})
	s.initialize("2025-06-18")
	second := s.initialize("2025-06-18") // evicts the first
	s.post(`{`, second)
	want := telemetry.HTTPSample{
		Sessions: 1,
		Ended:    []telemetry.EndedSample{{Why: "evicted", Count: 1}},
		Refused:  []telemetry.Refused{{Status: 400, Count: 1}},
	}
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.do("DELETE", "", header{second})
	want.Sessions, want.Ended = 0, append([]telemetry.EndedSample{{Why: "closed", Count: 1}}, want.Ended...)
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("after DELETE (-want +got):\n%s", diff)
	}
}
