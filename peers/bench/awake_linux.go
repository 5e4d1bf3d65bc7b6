package bench

import "golang.org/x/sys/unix"

// runWhenIdle has this thread run on the processor with this number, of those that it may use, and only while nothing else wants to.
func runWhenIdle(number int) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		if number--; number < 0 {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0)
}
