package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns for how long the machine has been suspended since it started. The clock
// of package time stands still meanwhile, and leases expire.
func suspended() time.Duration {
	var slept time.Duration
	for range 8 {
		before := readClock(unix.CLOCK_MONOTONIC)
		boot := readClock(unix.CLOCK_BOOTTIME)
		slept = boot - before
		if readClock(unix.CLOCK_MONOTONIC)-before < time.Millisecond {
			return slept.Truncate(10 * time.Millisecond)
		}
		// The process was stopped between two readings, and the difference says nothing.
	}
	return slept
}

func readClock(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil { // no kernel that Go supports lacks the clocks
		return 0
	}
	return time.Duration(t.Nano())
}
