package lazyworker_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/lazyworker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queue is a queue of functions.
type queue struct {
	lazyworker.Worker
	waiting []func()
}

func (q *queue) add(f func()) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.waiting = append(q.waiting, f)
	q.Start(q.runNext)
}

func (q *queue) runNext() (more bool) {
	q.Mu.Lock()
	if len(q.waiting) == 0 {
		q.End()
		q.Mu.Unlock()
		return false
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.Mu.Unlock()
	next()
	return true
}

// TestWorker runs functions in order, one at a time. One of them panics, and one ends its
// goroutine; the others still run, and no goroutine is left.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ran := new(queue), ""
		q.add(func() { ran += "a" })
		q.add(func() { ran += "b"; panic("b") })
		q.add(func() { pause(time.Second); ran += "c" })
		q.add(func() { ran += "d"; runtime.Goexit() })
		if q.Await(time.Second / 2) {
			t.Error("Await returned true before the work was done")
		}
		if !q.Await(time.Second) || ran != "abcd" {
			t.Errorf("ran %q", ran)
		}
		if !q.Await(0) {
			t.Error("Await returned false although there is no goroutine")
		}
		q.add(func() { ran += "e" })
		q.add(func() { ran += "f"; runtime.Goexit() })
		if synctest.Wait(); ran != "abcdef" || !q.Idle() {
			t.Errorf("ran %q, idle: %v; want %q and idle", ran, q.Idle(), "abcdef")
		}
	})
}

func pause(d time.Duration) { <-time.NewTimer(d).C }

// TestAwaitLast counts the grace from when the last item began, not from the call.
func TestAwaitLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(queue)
		q.add(func() { q.Mu.Lock(); q.Begin(); q.Mu.Unlock(); pause(time.Second) })
		pause(time.Second / 2)
		began := time.Now()
		if q.AwaitLast(time.Second*3/4) || time.Since(began) != time.Second/4 {
			t.Errorf("waited for %v, and not until the end of the grace", time.Since(began))
		}
		if !q.AwaitLast(2*time.Second) || time.Since(began) != time.Second/2 {
			t.Errorf("waited for %v, and not until the item ended", time.Since(began))
		}
	})
}
