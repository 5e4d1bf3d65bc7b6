// Package lazyworker processes the items of a queue one at a time, on a goroutine
// that exists only while items wait. Packages conn and supervisor use it for
// their queues of callbacks.
package lazyworker

import (
	"sync"
	"time"
)

// A Worker is a goroutine that exists only while its queue has items. The queue
// embeds the Worker and is guarded by its Mu. The zero value is ready to use.
type Worker struct {
	Mu    sync.Mutex
	ended chan struct{} // closed when the goroutine ends; nil while there is none
	began time.Time     // when the last item was taken; see Begin
}

// Runs reports whether the goroutine runs. The caller holds Mu.
func (w *Worker) Runs() bool { return w.ended != nil }

// Start starts the goroutine unless it runs already. The goroutine calls next
// until next returns false. The caller holds Mu.
func (w *Worker) Start(next func() (more bool)) {
	if w.Runs() {
		return
	}
	w.ended = make(chan struct{})
	go run(w.ended, next)
}

// run calls next until it returns false. A panic loses only the item that caused it. So does
// the end of the goroutine (runtime.Goexit): another one continues.
func run(ended chan struct{}, next func() (more bool)) {
	more := true
	defer func() {
		if more {
			go run(ended, next)
			return
		}
		close(ended)
	}()
	for more {
		more = guarded(next)
	}
}

func guarded(next func() (more bool)) (more bool) {
	defer func() { more = recover() != nil || more }()
	return next()
}

// Begin records that an item was taken. Next may call it while it holds Mu; see
// AwaitLast.
func (w *Worker) Begin() { w.began = time.Now() }

// End records that the goroutine ends. Next calls it while it holds Mu, when
// the queue is empty and next is about to return false. If an item is added
// after End, call Start again.
func (w *Worker) End() { w.ended = nil }

// Idle reports whether there is no goroutine, and so nothing that waits or runs.
func (w *Worker) Idle() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.ended == nil
}

// Await waits until the goroutine has ended, for at most the grace, and reports
// whether it has. It reports true at once if there is no goroutine.
func (w *Worker) Await(grace time.Duration) bool {
	w.Mu.Lock()
	ended := w.ended
	w.Mu.Unlock()
	if ended == nil {
		return true
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	}
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// AwaitLast does what Await does for a queue that was emptied: it waits for the
// item that is still running. The grace is counted from the Begin of that item.
func (w *Worker) AwaitLast(grace time.Duration) bool {
	w.Mu.Lock()
	remaining := grace - time.Since(w.began)
	w.Mu.Unlock()
	return w.Await(remaining)
}
