package stdio

import (
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

const (
	// shortGrace is the ladder of a child whose pipe broke while it lives.
	shortGrace = 100 * time.Millisecond

	// exitWait is how long a broken pipe waits for the exit that explains it.
	exitWait = 100 * time.Millisecond

	// drainTime bounds the reading of what a dead child left in its pipes.
	drainTime = 100 * time.Millisecond

	// interruptWait is how long an interrupted read or write may take to return
	// before it counts as left behind.
	interruptWait = time.Second

	// forcedWait is how long a forced end may take before Close gives up and
	// says so: a process that the kernel does not let die.
	forcedWait = 5 * time.Second
)

// climb waits for done. It asks after 30 % of the grace and forces after 70 %,
// and reports false when even that did not help.
func climb(done <-chan struct{}, grace time.Duration, ask, force func()) bool {
	askAt, forceAt := grace/10*3, grace/10*7
	if latch.Within(done, askAt) {
		return true
	}
	if forceAt > 0 {
		ask()
		if latch.Within(done, forceAt-askAt) {
			return true
		}
	}
	force()
	return latch.Within(done, forcedWait)
}
