package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram counts durations, to a hundredth of their length, and allocates
// nothing as it does. Any number of callers may add at once.
type histogram struct {
	counts [64 * parts]atomic.Int64
	sum    atomic.Int64
}

// parts is how many steps there are from a power of two to the next.
const parts = 1 << partBits

const partBits = 7

func (h *histogram) add(d time.Duration) {
	h.counts[step(uint64(d))].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) count() (n int64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// quantile is the shortest of the steps that such a part of the durations does not
// exceed.
func (h *histogram) quantile(q float64) time.Duration {
	left := int64(q * float64(h.count()))
	for i := range h.counts {
		if left -= h.counts[i].Load(); left < 0 {
			return time.Duration(least(i))
		}
	}
	return 0
}

// step is the place of a number: itself while it is small, and then its highest bits.
func step(v uint64) int {
	if v < parts {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - partBits
	return shift*parts + int(v>>shift)
}

// least is the smallest number of a step.
func least(step int) uint64 {
	if step < 2*parts {
		return uint64(step)
	}
	shift := step/parts - 1
	return uint64(step-shift*parts) << shift
}
