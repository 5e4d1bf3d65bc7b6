//bowline:pure

package conn

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A schedule says how long to wait before each attempt: the minimum, doubled
// each time up to the maximum, spread by jitter (ADR-0001).
type schedule struct {
	delays   backoff.ExponentialBackOff
	min, max time.Duration
	jitter   float64
}

func newSchedule(o *Options) *schedule {
	s := &schedule{min: o.BackoffMin, max: o.BackoffMax, jitter: o.BackoffJitter}
	s.delays = backoff.ExponentialBackOff{
		InitialInterval:     o.BackoffMin,
		Multiplier:          2,
		MaxInterval:         o.BackoffMax,
		RandomizationFactor: 0, // jitter is ours: the library's would exceed the maximum
		MaxElapsedTime:      0, // never give up
		Clock:               frozenClock{},
	}
	s.delays.Reset()
	return s
}

// next draws the delay uniformly from [(1-jitter)d, (1+jitter)d] ∩ [min, max]:
// clamping the interval instead of the result keeps capped delays apart.
func (s *schedule) next(random float64) time.Duration {
	d := float64(s.delays.NextBackOff())
	low := max(d*(1-s.jitter), float64(s.min))
	high := min(d*(1+s.jitter), float64(s.max))
	return time.Duration(low + random*(high-low))
}

// frozenClock keeps the library's unused elapsed time off the real clock.
type frozenClock struct{}

func (frozenClock) Now() time.Time { return time.Time{} }
