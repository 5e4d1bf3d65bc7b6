package conn

import (
	"testing"
	"time"
)

// The total of an outage never decreases, even if it ends at a time before that of an earlier reading.
func TestOutageNeverFalls(t *testing.T) {
	var o outage
	o.begin(time.Second)
	for i, step := range []struct {
		at   instant
		end  bool
		want time.Duration
	}{
		{at: 3 * time.Second, want: 2 * time.Second},
		{at: 2 * time.Second, want: 2 * time.Second},
		{at: 2900 * time.Millisecond, end: true, want: 2 * time.Second},
		{at: 9 * time.Second, want: 2 * time.Second},
	} {
		if step.end {
			o.end(step.at)
		}
		if total := o.until(step.at); total != step.want {
			t.Errorf("step %d: got %v, want %v", i, total, step.want)
		}
	}
}
