package bench

import (
	"runtime"
	"runtime/debug"
	"time"
)

// A spent is what work has cost.
type spent struct {
	mallocs uint64        // of this process
	bytes   uint64        // of this process
	cpu     time.Duration // of this process and its children; 0 where the system does not say
}

// spending is what was spent until work began; the children are looked for then,
// so that looking is not measured.
type spending struct {
	children []int
	before   spent
}

func startSpending() *spending {
	s := &spending{children: children()}
	s.before = s.soFar()
	return s
}

func (s *spending) soFar() spent {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return spent{stats.Mallocs, stats.TotalAlloc, processorTime(s.children)}
}

func (s *spending) stop() spent {
	now := s.soFar()
	return spent{now.mallocs - s.before.mallocs, now.bytes - s.before.bytes, now.cpu - s.before.cpu}
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
