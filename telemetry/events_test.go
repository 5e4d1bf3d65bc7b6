package telemetry_test

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A gap says in words how long it was and how many attempts it took.
//
// Guarantees: G-0024.13
func TestGapInWords(t *testing.T) {
	for want, gap := range map[string]telemetry.Gap{
		"back after 2.1 s, 3 attempts":  {Lost: 4, Epoch: 7, Duration: 2099 * time.Millisecond},
		"back after 2 s, 2 attempts":    {Lost: 1, Epoch: 3, Duration: 2 * time.Second},
		"back after 40 ms, 1 attempt":   {Lost: 1, Epoch: 2, Duration: 40*time.Millisecond + 300*time.Microsecond},
		"back after 1m30s, 12 attempts": {Lost: 1, Epoch: 13, Duration: 90 * time.Second},
		"back after 1m0s, 8 attempts":   {Lost: 1, Epoch: 9, Duration: 59_990 * time.Millisecond},
	} {
		if got := gap.String(); got != want {
			t.Errorf("%+v: got %q, want %q", gap, got, want)
		}
	}
}
