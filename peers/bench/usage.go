package bench

import (
	"runtime"
	"runtime/debug"
	"time"
)

// A spent is what work has cost until some moment.
type spent struct {
	mallocs uint64        // of this process
	bytes   uint64        // of this process
	cpu     time.Duration // of this process and its children; 0 where the system does not say
}

func spentSoFar() spent {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return spent{stats.Mallocs, stats.TotalAlloc, processorTime()}
}

// A weight is what this process holds at some moment.
type weight struct {
	bytes      int // the heap and the stacks
	goroutines int
}

// weigh looks when all is idle: connections give up what only work needs 100 ms
// after their last event. What was pooled is garbage for the second
// collection, and a stack shrinks at each.
func (m *measurement) weigh() weight {
	rest(pick(m, time.Second, 200*time.Millisecond))
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return weight{int(stats.HeapAlloc + stats.StackInuse), runtime.NumGoroutine()}
}

// rest waits: there is no event that says that a process is idle.
func rest(d time.Duration) { <-time.NewTimer(d).C }

func (s spent) since(before spent) spent {
	return spent{s.mallocs - before.mallocs, s.bytes - before.bytes, s.cpu - before.cpu}
}
