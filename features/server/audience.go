package server

import "sync"

// A listener is told of changes. It must not block.
type listener interface{ toolsChanged() }

// An audience are those who are to be told of changes.
type audience struct {
	mu        sync.Mutex
	listeners map[listener]struct{}
}

// add has a listener told until it is removed.
func (a *audience) add(l listener) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listeners == nil {
		a.listeners = make(map[listener]struct{})
	}
	a.listeners[l] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, l)
	}
}

func (a *audience) toolsChanged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.listeners {
		l.toolsChanged()
	}
}
