package stdio

import (
	"sync"
	"sync/atomic"
	"time"
)

// watchEvery is how often a timer checks whether the goroutine that reads has returned
// from the receiver. So frames that arrive meanwhile wait at most twice as long.
const watchEvery = time.Millisecond

// watchIdle is after how many checks without a change the timer stops.
const watchIdle = 8

// A duty is the reading of a wire. One goroutine at a time has it. It keeps the duty
// while it calls the receiver, which may take as long as a handler (ADR-0055). If that
// takes longer than watchEvery, or if the handler announces that it will, a new
// goroutine takes over the duty. The old one must then not use anything that belongs to
// it.
type duty struct {
	// state is a counter. It is odd while the goroutine that has the duty calls the
	// receiver.
	state atomic.Uint64

	watched atomic.Bool
	mu      sync.Mutex
	timer   *time.Timer // nil before the first watch
	stopped bool
	seen    uint64 // what the watch saw last
	idle    int    // how many checks in a row saw that
}

// begin must be called before the receiver. If the goroutine loses the duty, a new
// goroutine runs next.
func (d *duty) begin(next func()) (task uint64) {
	task = d.state.Load() + 1
	d.state.Store(task)
	if !d.watched.Load() && d.watched.CompareAndSwap(false, true) {
		d.start(next)
	}
	return task
}

// end reports whether the caller still has the duty.
func (d *duty) end(task uint64) bool { return d.state.CompareAndSwap(task, task+1) }

// A holder is a goroutine that has the duty, or has had it.
type holder struct {
	task  atomic.Uint64 // the last one that it has begun; 0 before the first
	leave func()
}

// newHolder returns a holder whose leave makes another goroutine take over the duty. If
// another one already has it, leave does nothing.
func (d *duty) newHolder(next func()) *holder {
	h := new(holder)
	h.leave = func() {
		if task := h.task.Load(); task != 0 && d.end(task) {
			go next()
		}
	}
	return h
}

func (d *duty) start(next func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.idle = 0; {
	case d.stopped:
	case d.timer == nil:
		d.timer = time.AfterFunc(watchEvery, func() { d.watch(next) })
	default:
		d.timer.Reset(watchEvery)
	}
}

// watch takes the duty away from a goroutine whose call of the receiver has not returned
// since the last check.
func (d *duty) watch(next func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.state.Load()
	switch before := d.seen; {
	case d.stopped:
		return
	case state != before:
		d.seen, d.idle = state, 0
	case state%2 == 1:
		if d.end(state) {
			go next()
		}
	case d.idle < watchIdle:
		d.idle++
	default:
		d.watched.Store(false)
		if d.state.Load() == state || !d.watched.CompareAndSwap(false, true) {
			return // the next begin starts it again
		}
		d.idle = 0
	}
	d.timer.Reset(watchEvery)
}

func (d *duty) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped = true; d.timer != nil {
		d.timer.Stop()
	}
}
