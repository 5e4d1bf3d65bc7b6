package streamable

import (
	"sync"
	"sync/atomic"
	"time"
)

// An alarm wakes the goroutine of a response: for a signal, and when a time is over.
//
// No signal is lost: the channel holds one, and whoever is woken looks at everything that may have
// changed.
type alarm struct {
	wake  chan struct{} // holds one
	over  atomic.Bool   // the time is over
	timer *time.Timer   // nil before the first set
}

// signal wakes the goroutine.
func (a *alarm) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// set makes the alarm wake the goroutine after a time, which replaces the time before.
// Only the goroutine that waits calls it.
func (a *alarm) set(after time.Duration) {
	a.over.Store(false)
	if a.timer == nil {
		a.timer = time.AfterFunc(after, a.ring)
		return
	}
	a.timer.Reset(after)
}

func (a *alarm) ring() {
	a.over.Store(true)
	a.signal()
}

// isOver reports whether the time is over.
func (a *alarm) isOver() bool { return a.over.Load() }

// alarms reuses alarms, because each request needs one. The zero value is ready to use.
type alarms struct{ free sync.Pool }

func (all *alarms) take() *alarm {
	if a, ok := all.free.Get().(*alarm); ok {
		return a
	}
	return &alarm{wake: make(chan struct{}, 1)}
}

// keep stops an alarm, to which nobody else refers any more, and keeps it for reuse. If it
// may be ringing, it is not reused.
func (all *alarms) keep(a *alarm) {
	if a.timer == nil || !a.timer.Stop() {
		return
	}
	select {
	case <-a.wake:
	default:
	}
	all.free.Put(a)
}
