package gateway

import (
	"context"
	"reflect"
	"sync"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// An eye tells those who look at a gateway that it has changed. While somebody looks, one goroutine waits for all that may
// change, until something has; else there is none.
type eye struct {
	woken chan struct{} // holds one: many changes are one

	mu      sync.Mutex
	changed chan struct{} // nil: nobody has looked yet
	ending  chan struct{}
	closed  bool
	running sync.WaitGroup
}

func newEye() *eye { return &eye{woken: make(chan struct{}, 1), ending: make(chan struct{})} }

// wake says that something has changed. It never waits.
func (e *eye) wake() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// open returns a channel that is closed after the next change. Causes returns what tells of changes, beside wake; it is asked before open
// returns, so that no change falls between.
func (e *eye) open(causes func() []<-chan struct{}) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed != nil && !wait.IsClosed(e.changed) {
		return e.changed
	}
	changed := make(chan struct{})
	e.changed = changed
	if e.closed {
		close(changed)
		return changed
	}
	var all []reflect.SelectCase
	for _, c := range append(causes(), e.woken, e.ending) {
		all = append(all, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	e.running.Go(func() {
		reflect.Select(all)
		close(changed)
	})
	return changed
}

func (e *eye) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// close ends the goroutine, if there is one, and waits for it.
func (e *eye) close() {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.ending)
	}
	e.mu.Unlock()
	e.running.Wait()
}

// meeting notices when a client comes and when it goes.
func (e *eye) meeting(given func(context.Context, *server.Session) context.Context) func(context.Context, *server.Session) context.Context {
	return func(ctx context.Context, s *server.Session) context.Context {
		e.wake()
		context.AfterFunc(ctx, e.wake)
		if given != nil {
			return given(ctx, s)
		}
		return ctx
	}
}
