package bench

import (
	"runtime"
	"runtime/debug"
	"time"
)

// settling is how long a process rests before it is weighed: idle connections
// give up what only work needs 100 ms after their last event.
const settling = 300 * time.Millisecond

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

// weigh looks when all is idle. What was pooled is garbage for the second
// collection, and a stack shrinks at each.
func weigh() weight {
	rest(settling)
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
