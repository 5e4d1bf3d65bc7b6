package cluster

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// wakers are the connections of this node that use a server. When a lease has changed, those are
// woken that have not asked for a link since. That happens several times, because a connection may
// begin to wait only after it was woken.
type wakers struct {
	mu      sync.Mutex
	asked   map[transport.Waker]uint64 // what changes was when a connection last asked for a link
	changes uint64
	times   int           // how often they are still to be woken
	kick    chan struct{} // capacity one: there is something to do
}

const (
	wakeTimes = 3
	wakeStep  = time.Second
)

func newWakers() *wakers {
	return &wakers{asked: map[transport.Waker]uint64{}, kick: make(chan struct{}, 1)}
}

// asks notes that a connection asks for a link. It returns what failed needs.
func (w *wakers) asks(waker transport.Waker) (seen uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetEnded()
	if waker != nil {
		w.asked[waker] = w.changes
	}
	return w.changes
}

// failed notes that a connection got no link. If something has changed meanwhile, it is woken.
func (w *wakers) failed(seen uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen != w.changes {
		w.times = wakeTimes
		w.poke()
	}
}

// change has all woken.
func (w *wakers) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	w.times = wakeTimes
	w.poke()
}

func (w *wakers) poke() {
	select {
	case w.kick <- struct{}{}:
	default: // it is full, which says the same
	}
}

// wake wakes those for whom something has changed. It reports whether it has to be called again
// after wakeStep.
func (w *wakers) wake() (again bool) {
	due, again := w.due()
	for _, waker := range due {
		waker.Wake()
	}
	return again
}

func (w *wakers) due() (due []transport.Waker, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times == 0 {
		return nil, false
	}
	w.times--
	w.forgetEnded()
	for waker, seen := range w.asked {
		if seen != w.changes {
			due = append(due, waker)
		}
	}
	return due, w.times > 0
}

// areThere reports whether a connection that uses the server has not ended.
func (w *wakers) areThere() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetEnded()
	return len(w.asked) > 0
}

func (w *wakers) forgetEnded() {
	for waker := range w.asked {
		if wait.IsClosed(waker.Done()) {
			delete(w.asked, waker)
		}
	}
}
