package cluster

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// wakers are the connections that have no link, and may wait before they open one. When a lease has
// changed, they are woken until they open one, since a connection may begin to wait only after it
// was woken.
type wakers struct {
	mu      sync.Mutex
	all     map[transport.Waker]int // how often each was woken since the last change; waits: it need not be woken
	changes uint64
	kick    chan struct{} // capacity one: somebody is to be woken
}

const (
	waits    = -1
	maxWakes = 3
	wakeStep = time.Second
)

func newWakers() *wakers {
	return &wakers{all: map[transport.Waker]int{}, kick: make(chan struct{}, 1)}
}

// opens notes that a connection opens a link. It returns what rests needs.
func (w *wakers) opens(waker transport.Waker) (seen uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, waker)
	return w.changes
}

// rests notes that the Open has failed, or that its link has ended.
func (w *wakers) rests(waker transport.Waker, seen uint64) {
	if waker == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[waker] = waits
	if seen != w.changes {
		w.all[waker] = 0
		w.poke()
	}
}

// change has all woken.
func (w *wakers) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	for waker := range w.all {
		w.all[waker] = 0
	}
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
	for _, waker := range w.due() {
		waker.Wake()
		again = true
	}
	return again
}

// due counts those that are to be woken. Who was woken often enough and opens nothing has ended.
func (w *wakers) due() (due []transport.Waker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waker, woken := range w.all {
		switch {
		case woken == waits:
		case woken == maxWakes:
			delete(w.all, waker)
		default:
			w.all[waker]++
			due = append(due, waker)
		}
	}
	return due
}
