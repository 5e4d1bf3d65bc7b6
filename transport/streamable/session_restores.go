package streamable

import (
	"context"
	"sync"

	"github.com/bowline-mcp/bowline/internal/share"
)

// mostRestores is how many sessions are restored at a time.
const mostRestores = 64

// restores are the sessions that are being restored: taken from the store, and begun again
// at the server.
//
// There is one attempt for a session at a time, because the store gives it to one. The others wait for
// it, and use its result only if they are of the same identity: nobody learns from a refusal whether
// somebody else's session exists. A session that another node takes during the attempt is given up
// when it ends.
type restores struct {
	places  *share.Pool // keeps one client from delaying the others
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*restore
	failed bool // the store could not tell, when it was asked last
	closed bool
}

func newRestores(stopped <-chan struct{}) *restores {
	// shared: sessions that are restored from their store | mostRestores places | one | the request waits, and is refused with 503 | `HTTPSample.Refused`
	all := &restores{places: share.New(mostRestores, 1, stopped), all: make(map[string]*restore)}
	all.ctx, all.cancel = context.WithCancel(context.Background())
	return all
}

// A restore is one attempt to restore a session, for the identity of the request that came
// first.
type restore struct {
	identity string
	done     chan struct{}
	refused  *refusal // why the session was not restored; nil if it was. Set before done is closed
	lost     bool     // another node has taken the session meanwhile; guarded by restores.mu
}

// join returns the attempt to restore a session, or nil after close. If it is the first, the
// caller makes it, and then calls finish.
func (all *restores) join(session, identity string) (_ *restore, first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r := all.all[session]; r != nil || all.closed {
		return r, false
	}
	all.running.Add(1)
	r := &restore{identity: identity, done: make(chan struct{})}
	all.all[session] = r
	return r, true
}

// finish ends an attempt. Those who wait for it read its result then.
func (all *restores) finish(session string, r *restore) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, session)
	close(r.done)
	all.running.Done()
}

// close ends all attempts, and waits for them.
func (all *restores) close() {
	if all == nil {
		return
	}
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.cancel()
	all.running.Wait()
}

// has reports whether a session is being restored.
func (all *restores) has(session string) bool {
	if all == nil {
		return false
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.all[session] != nil
}

// fails notes whether the store could tell, and reports whether it could not for the first time.
func (all *restores) fails(failed bool) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	first = failed && !all.failed
	all.failed = failed
	return first
}

// lose notes that another node has taken a session.
func (all *restores) lose(session string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r := all.all[session]; r != nil {
		r.lost = true
	}
}

func (all *restores) isLost(r *restore) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return r.lost
}
