package gateway

import (
	"reflect"
	"sync"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A notifier tells those who look at a gateway that it has changed. While somebody looks, one goroutine waits for all that may
// change, until something has; else there is none.
type notifier struct {
	signal chan struct{} // holds one: many changes are one

	mu      sync.Mutex
	changed chan struct{} // nil: nobody has looked yet
	ending  chan struct{}
	closed  bool
	running sync.WaitGroup
}

func newNotifier() *notifier {
	return &notifier{signal: make(chan struct{}, 1), ending: make(chan struct{})}
}

// notify says that something has changed. It never waits.
func (n *notifier) notify() {
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// next returns a channel that is closed after the next change. Causes returns what tells of changes, beside notify; it is asked before next
// returns, so that no change falls between.
func (n *notifier) next(causes func() []<-chan struct{}) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed != nil && !wait.IsClosed(n.changed) {
		return n.changed
	}
	changed := make(chan struct{})
	n.changed = changed
	if n.closed {
		close(changed)
		return changed
	}
	var all []reflect.SelectCase
	for _, c := range append(causes(), n.signal, n.ending) {
		all = append(all, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	n.running.Go(func() {
		reflect.Select(all)
		close(changed)
	})
	return changed
}

func (n *notifier) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// close ends the goroutine, if there is one, and waits for it.
func (n *notifier) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.ending)
	}
	n.mu.Unlock()
	n.running.Wait()
}
