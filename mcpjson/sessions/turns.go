package sessions

import (
	"maps"
	"slices"
	"sync"
)

// turns let one after the other act on the same server, and let nobody wait who acts on another: to end a server may take seconds.
//
// Apply and Close have several turns at once. They exclude each other, and everybody else has one turn only and waits for
// nothing in it, so none waits for another in a circle.
type turns struct {
	mu     sync.Mutex
	byName map[string]*turn // of those that somebody has or waits for
}

// A turn is that of one server. It is no mutex: those who wait for a channel are served in their order, and a test in virtual time can see that they wait.
type turn struct {
	free  chan struct{} // has a value while nobody has the turn
	users int           // guarded by the mu of the turns
}

// begin waits until nobody else acts on a server, and keeps others from it until done is called.
func (ts *turns) begin(name string) (done func()) {
	t := ts.join(name)
	<-t.free
	return func() {
		t.free <- struct{}{}
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(ts.byName, name)
		}
	}
}

// join returns the turn of a server, which exists as long as somebody has it or waits for it. So names that nobody uses any more take no room.
func (ts *turns) join(name string) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byName[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if ts.byName == nil {
			ts.byName = make(map[string]*turn)
		}
		ts.byName[name] = t
	}
	t.users++
	return t
}

// names returns those that somebody acts on now.
func (ts *turns) names() []string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Collect(maps.Keys(ts.byName))
}
