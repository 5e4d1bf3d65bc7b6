package streamable

import "time"

const (
	// lingering is how long a goroutine of a link waits for another request. A new
	// goroutine for each request would grow its stack each time, deep in net/http.
	lingering = 100 * time.Millisecond

	// maxIdleWorkers limits how many wait.
	maxIdleWorkers = 64
)

// clientWorkers are the goroutines of a link that wait for work. The link's mu guards
// them. The zero value is ready to use.
type clientWorkers struct {
	idle  []chan func() // each has room for one
	used  bool          // one of them got work since the timer was set
	armed bool
	timer *time.Timer // ends them; nil before the first one
}

// run runs work on a goroutine that the link waits for when it ends. The caller holds
// mu.
func (l *clientLink) run(work func()) {
	if l.ending.IsStopped() {
		return
	}
	w := &l.workers
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last] <- work
		w.idle, w.used = w.idle[:last], true
		return
	}
	l.ending.Start()
	go l.work(work)
}

// work runs one work after the other, until the goroutine is dismissed.
func (l *clientLink) work(work func()) {
	more := make(chan func(), 1)
	for ok := true; ok; work, ok = <-more {
		work()
		if !l.await(more) {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.Return()
	l.check()
}

// await waits for work. It reports false if the goroutine must end.
func (l *clientLink) await(more chan func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.workers
	if l.ending.IsStopped() || len(w.idle) == maxIdleWorkers {
		l.ending.Return()
		l.check()
		return false
	}
	w.idle = append(w.idle, more)
	l.armWorkers()
	return true
}

// armWorkers sets the timer that ends idle goroutines.
func (l *clientLink) armWorkers() {
	w := &l.workers
	switch {
	case w.armed:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(lingering, l.dismissIdle)
	default:
		w.timer.Reset(lingering)
	}
	w.armed, w.used = true, false
}

// dismissIdle ends the waiting goroutines, unless the link is busy.
func (l *clientLink) dismissIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.workers
	if w.armed = false; w.used && len(w.idle) > 0 && !l.ending.IsStopped() {
		l.armWorkers()
		return
	}
	w.dismiss()
}

// dismiss ends the waiting goroutines.
func (w *clientWorkers) dismiss() {
	for _, more := range w.idle {
		close(more)
	}
	if w.idle = nil; w.timer != nil {
		w.timer.Stop()
	}
}
