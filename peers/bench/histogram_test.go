package bench

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := new(histogram)
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	if h.count() != 1000 || time.Duration(h.sum.Load()) != 500500*time.Microsecond {
		t.Errorf("%d durations of %v in all", h.count(), time.Duration(h.sum.Load()))
	}
	for q, want := range map[float64]time.Duration{0: time.Microsecond, 0.5: 501 * time.Microsecond, 0.99: 991 * time.Microsecond} {
		if got := h.quantile(q); got > want || got < want*99/100 {
			t.Errorf("quantile %v is %v, want %v to a hundredth", q, got, want)
		}
	}
}

// Steps are contiguous, and each begins at most 1 % below the values in it.
func TestStepsOfAHistogram(t *testing.T) {
	for v := uint64(1); v < 1<<40; v += 1 + v/1000 {
		at := step(v)
		if low := least(at); low > v || v-low > v/100 || step(low) != at || at > 0 && step(low-1) != at-1 {
			t.Fatalf("%d is in step %d, which begins at %d", v, at, low)
		}
	}
}
