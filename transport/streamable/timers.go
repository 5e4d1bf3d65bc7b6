package streamable

import (
	"sync"
	"time"
)

// timers are used again, since each request needs one. The zero value is ready to use.
type timers struct{ free sync.Pool }

// start returns a timer that fires after a while. The caller gives it to stop.
func (t *timers) start(after time.Duration) *time.Timer {
	timer, ok := t.free.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(after)
	}
	timer.Reset(after)
	return timer
}

// stop stops a timer, whose channel is empty then.
func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.free.Put(timer)
}
