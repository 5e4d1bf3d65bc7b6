// Package hookqueue makes calls of a program's hooks, so that a hook that is slow delays nobody but
// the hooks behind it. It makes them one at a time, in order, on a goroutine that exists only
// while calls wait.
package hookqueue

import (
	"time"

	"github.com/bowline-mcp/bowline/internal/lazyworker"
)

// bound is how many calls wait for slow hooks.
const bound = 1024

// A Queue holds calls until they are made. Its methods may be called from any goroutine. It must
// not be copied.
type Queue struct {
	// Make makes a call, and recovers its panic. It must be set before the first Submit.
	Make func(call func())

	worker  lazyworker.Worker // its lock guards waiting
	waiting []func()
}

// Submit adds a call. It never waits: if too many calls wait, it reports false, and the call is
// lost.
func (q *Queue) Submit(call func()) bool {
	q.worker.Mu.Lock()
	defer q.worker.Mu.Unlock()
	if len(q.waiting) >= bound {
		return false
	}
	q.waiting = append(q.waiting, call)
	q.worker.Start(q.makeNext)
	return true
}

func (q *Queue) makeNext() (more bool) {
	call := q.next()
	if call != nil {
		q.Make(call)
	}
	return call != nil
}

// next takes the oldest call out, or returns nil: then the goroutine ends.
func (q *Queue) next() func() {
	q.worker.Mu.Lock()
	defer q.worker.Mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.worker.End()
		return nil
	}
	next := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	q.worker.Begin()
	return next
}

// Settle waits until no call is made, for at most the grace. If that is too short, it drops the
// calls that wait. If a call is still being made then, Settle waits until that has lasted for the
// grace, and reports false if it has not returned by then.
func (q *Queue) Settle(grace time.Duration) bool {
	if q.worker.Await(grace) {
		return true
	}
	q.worker.Mu.Lock()
	q.waiting = nil
	q.worker.Mu.Unlock()
	return q.worker.AwaitLast(grace)
}
