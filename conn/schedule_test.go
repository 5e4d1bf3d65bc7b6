package conn

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Guarantees: G-0001.4
func TestDelaysAreSpreadWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			BackoffMin:    time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "min")),
			BackoffMax:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "max")),
			BackoffJitter: rapid.Float64Range(0.01, 0.99).Draw(t, "jitter"),
		}.withDefaults()
		s := newSchedule(&o)
		d := o.BackoffMin
		for range 20 {
			random := rapid.Float64Range(0, 1).Draw(t, "random")
			wait := s.next(random)
			low := max(float64(d)*(1-o.BackoffJitter), float64(o.BackoffMin))
			high := min(float64(d)*(1+o.BackoffJitter), float64(o.BackoffMax))
			if float64(wait) < low-1 || float64(wait) > high+1 {
				t.Fatalf("the delay %v drawn for %v is not in [%v, %v]", wait, d, low, high)
			}
			d = min(2*d, o.BackoffMax)
		}
	})
}

// Clamping the interval and not the draw keeps first and capped delays apart.
//
// Guarantees: G-0001.4
func TestFirstAndCappedDelaysDoNotPileUp(t *testing.T) {
	first := func(random float64) time.Duration {
		s := newSchedule(defaults())
		return s.next(random)
	}
	capped := func(random float64) time.Duration {
		s := newSchedule(defaults())
		for range 10 {
			s.next(0)
		}
		return s.next(random)
	}
	for name, c := range map[string]struct {
		delay     func(float64) time.Duration
		low, high time.Duration
	}{
		"first":  {first, time.Second, 1200 * time.Millisecond},
		"capped": {capped, 24 * time.Second, 30 * time.Second},
	} {
		if low, high := c.delay(0), c.delay(1); low != c.low || high != c.high {
			t.Errorf("%s: from %v to %v, want %v to %v", name, low, high, c.low, c.high)
		}
		if middle := c.delay(0.5); middle != (c.low+c.high)/2 {
			t.Errorf("%s: the middle is %v", name, middle)
		}
	}
}
