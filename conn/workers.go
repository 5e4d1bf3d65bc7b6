package conn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A served is a request, and the context of its handler. It has no more than four words, since
// Go keeps larger values on the stack, also on that of every caller who waits.
type served struct {
	*Incoming
	ctx context.Context
}

// A server is the loop whose requests a worker serves. serveOne reports false when the loop has
// ended.
type server interface{ serveOne(request served) bool }

// unwanted returns why the handler must not start any more, or nil.
func (s *served) unwanted(now instant, patience time.Duration) error {
	switch {
	case s.ctx.Err() != nil && !errors.Is(context.Cause(s.ctx), ErrDraining): // only a stream ends so: its handler answers
		return context.Cause(s.ctx)
	case passed(now, s.startBy):
		return errTooLate(patience)
	default:
		return nil
	}
}

// A worker is a goroutine that runs one handler after the other. A new goroutine
// for each would grow its stack each time, which costs up to a fourth of a call.
type worker struct {
	requests chan served // capacity one
	by       server      // the loop of the request; set before the request is sent, while the worker waits
}

// serveAll serves requests until the worker is dismissed.
func (w *worker) serveAll() {
	for request := range w.requests {
		if !w.by.serveOne(request) {
			return // the loop has ended, so nobody will dismiss the worker
		}
	}
}

// workers are the workers that wait for a request of any Conn that shares the Wheel. There
// are none while all its loops are parked.
type workers struct {
	mu    sync.Mutex
	idle  []*worker
	loops int // how many of the loops are not parked
}

// maxIdleWorkers is the maximum number of waiting workers: the default of MaxServing.
const maxIdleWorkers = 128

// take returns the idle worker that has served a request most recently, or nil.
func (w *workers) take() *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.idle) - 1
	if last < 0 {
		return nil
	}
	taken := w.idle[last]
	w.idle = w.idle[:last]
	return taken
}

// add adds a worker that has served a request. The loop of that request is not parked.
func (w *workers) add(idle *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) == maxIdleWorkers {
		close(idle.requests)
		return
	}
	w.idle = append(w.idle, idle)
}

// busy notes that a loop has work.
func (w *workers) busy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loops++
}

// parked notes that a loop has parked or ended. After the last one, it ends the waiting
// workers.
func (w *workers) parked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loops--; w.loops > 0 {
		return
	}
	for _, idle := range w.idle {
		close(idle.requests)
	}
	w.idle = nil
}

// A pace is the moving average of how long handlers take. The latest one counts for an
// eighth, so one slow handler has an effect for some dozens of quick ones. It is zero
// only before the first handler. It counts nanoseconds, a second at most, and is half as
// large as a time.Duration, because every busy loop has two.
type pace int32

func (p *pace) note(took time.Duration) {
	if *p == 0 {
		*p = firstPace
	}
	*p += (pace(min(took, time.Second)) - *p) / 8
}

func (p pace) isAtMost(longest pace) bool { return p != 0 && p <= longest }

// If handlers take no longer than quickHandler on average, they run on the goroutine of a
// link that allows it (ADR-0055), since switching to another goroutine costs about as much.
// While further requests wait behind them, which could run at the same time, the limit is
// quickestHandler.
const (
	quickHandler    = pace(100 * time.Microsecond)
	quickestHandler = pace(10 * time.Microsecond)
	firstPace       = pace(time.Millisecond)
)
