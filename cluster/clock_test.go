package cluster

import (
	"testing"
	"time"
)

// TestSuspended checks that the time of suspensions is read without error, and stands still
// while the machine runs.
func TestSuspended(t *testing.T) {
	first := suspended()
	if first < 0 {
		t.Errorf("the machine was suspended for %v", first)
	}
	for range 1000 {
		if now := suspended(); now < first-10*time.Millisecond || now > first+10*time.Millisecond {
			t.Fatalf("the machine was suspended for %v, and then for %v", first, now)
		}
	}
}
