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

// A readerRole ensures that one goroutine at a time reads the stream. That goroutine
// keeps the role while it calls the receiver, which may take as long as a handler
// (ADR-0055). If that takes longer than watchEvery, or if the handler announces that it
// will, a new goroutine takes over the role. The old one must then not use anything that
// belongs to the reader.
type readerRole struct {
	// state is a counter. It is odd while the goroutine that has the role calls the
	// receiver.
	state atomic.Uint64

	watched atomic.Bool
	mu      sync.Mutex
	timer   *time.Timer // nil before the first watch
	stopped bool
	seen    uint64 // the state at the last check
	idle    int    // how many checks in a row saw that state
}

// beginCall must be called before the receiver. If the goroutine loses the role, a new
// goroutine runs next.
func (r *readerRole) beginCall(next func()) (task uint64) {
	task = r.state.Load() + 1
	r.state.Store(task)
	if !r.watched.Load() && r.watched.CompareAndSwap(false, true) {
		r.start(next)
	}
	return task
}

// endCall reports whether the caller still has the role.
func (r *readerRole) endCall(task uint64) bool { return r.state.CompareAndSwap(task, task+1) }

// A readerGoroutine is a goroutine that has the role, or has had it.
type readerGoroutine struct {
	task  atomic.Uint64 // the last one that it has begun
	leave func()
}

// newGoroutine returns a readerGoroutine whose leave makes another goroutine take over
// the role. If another one already has it, leave does nothing. It must have begun a task before that.
func (r *readerRole) newGoroutine(next func()) *readerGoroutine {
	g := new(readerGoroutine)
	g.leave = func() {
		if r.endCall(g.task.Load()) {
			go next()
		}
	}
	return g
}

// start starts the timer.
func (r *readerRole) start(next func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.idle = 0; {
	case r.stopped:
	case r.timer == nil:
		r.timer = time.AfterFunc(watchEvery, func() { r.watch(next) })
	default:
		r.timer.Reset(watchEvery)
	}
}

// watch takes the role away from a goroutine whose call of the receiver has not returned
// since the last check.
func (r *readerRole) watch(next func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state.Load()
	switch before := r.seen; {
	case r.stopped:
		return
	case state != before:
		r.seen, r.idle = state, 0
	case state%2 == 1:
		if r.endCall(state) {
			go next()
		}
	case r.idle < watchIdle:
		r.idle++
	default:
		r.watched.Store(false)
		if r.state.Load() == state || !r.watched.CompareAndSwap(false, true) {
			return // the next beginCall starts it again
		}
	}
	r.timer.Reset(watchEvery)
}

// stop stops the timer for good.
func (r *readerRole) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped = true; r.timer != nil {
		r.timer.Stop()
	}
}
