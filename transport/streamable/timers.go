package streamable

import (
	"sync"
	"time"
)

// timers reuses timers, because each request needs one. The zero value is ready to use.
type timers struct{ free sync.Pool }

// start returns a timer that fires after the given time. The caller passes it to stop.
func (t *timers) start(after time.Duration) *time.Timer {
	timer, ok := t.free.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(after)
	}
	timer.Reset(after)
	return timer
}

// stop stops a timer and keeps it for reuse. Its channel is empty then.
func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.free.Put(timer)
}
