package streamable

import (
	"container/list"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// sessions are those of one handler: by id, and the idle ones by age. One timer
// serves them all.
type sessions struct {
	limit     int
	idleLimit time.Duration
	expiring  sync.WaitGroup // the timer, armed or running

	mu     sync.Mutex
	byID   map[string]*serverSession
	shared map[Acceptor]*serverSession // of messages without a session
	idle   list.List                   // of *serverSession, idle longest first
	timer  *time.Timer
	closed bool
	last   []*serverSession // those that were there when it was closed
}

// add takes a new session up. One that is idle may have to give way: it is the
// caller's to end. It reports false when all are busy, or no more are taken.
func (t *sessions) add(s *serverSession) (evicted *serverSession, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false
	}
	if s.isStateless() {
		t.shared[s.acceptor] = s
		return nil, true
	}
	if len(t.byID) >= t.limit {
		oldest := t.idle.Front()
		if oldest == nil {
			return nil, false
		}
		evicted = oldest.Value.(*serverSession)
		t.forget(evicted)
	}
	t.byID[s.id] = s
	return evicted, true
}

// find returns a session that is then in use by the caller, or nil.
func (t *sessions) find(id string) *serverSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s != nil {
		t.use(s)
	}
	return s
}

// current returns the link of an acceptor's messages without a session, in use by
// the caller, or nil.
func (t *sessions) current(a Acceptor) *serverSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shared[a]
	if s == nil || !s.ready || latch.IsRaised(s.closing) {
		return nil
	}
	t.use(s)
	return s
}

// enter makes the caller the first user of a session that was bound, unless it
// was removed.
func (t *sessions) enter(s *serverSession) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.removed {
		return false
	}
	s.ready = true
	t.use(s)
	return true
}

func (t *sessions) use(s *serverSession) {
	s.users++
	if s.place != nil {
		t.idle.Remove(s.place)
		s.place = nil
	}
}

// leave undoes what made the caller a user.
func (t *sessions) leave(s *serverSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	switch {
	case s.quiet != nil:
		close(s.quiet)
	case !s.removed:
		s.since, s.place = time.Now(), t.idle.PushBack(s)
		t.arm()
	}
}

// remove lets nobody use the session any more, and returns what is closed when
// nobody does.
func (t *sessions) remove(s *serverSession) (quiet <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(s)
	s.quiet = make(chan struct{})
	if s.users == 0 {
		close(s.quiet)
	}
	return s.quiet
}

func (t *sessions) forget(s *serverSession) {
	s.removed = true
	if t.byID[s.id] == s {
		delete(t.byID, s.id)
	}
	if t.shared[s.acceptor] == s {
		delete(t.shared, s.acceptor)
	}
	if s.place != nil {
		t.idle.Remove(s.place)
		s.place = nil
	}
}

// arm sets the timer for the session that is idle longest, unless it is set.
func (t *sessions) arm() {
	oldest := t.idle.Front()
	if t.timer != nil || oldest == nil || t.closed {
		return
	}
	t.expiring.Add(1)
	t.timer = time.AfterFunc(time.Until(oldest.Value.(*serverSession).since.Add(t.idleLimit)), t.expire)
}

// expire ends the sessions that were idle for too long.
func (t *sessions) expire() {
	defer t.expiring.Done()
	for _, s := range t.takeExpired() {
		s.end(transport.ErrSessionExpired, 0)
	}
}

func (t *sessions) takeExpired() (expired []*serverSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	for oldest := t.idle.Front(); oldest != nil; oldest = t.idle.Front() {
		s := oldest.Value.(*serverSession)
		if time.Since(s.since) < t.idleLimit {
			break
		}
		t.forget(s)
		expired = append(expired, s)
	}
	t.arm()
	return expired
}

// close takes no more sessions, and returns those that were there when it was
// called first.
func (t *sessions) close() (busy, idle []*serverSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		for _, s := range t.byID {
			t.last = append(t.last, s)
		}
		for _, s := range t.shared {
			t.last = append(t.last, s)
		}
		if t.timer != nil && t.timer.Stop() {
			t.expiring.Done()
		}
	}
	for _, s := range t.last {
		if s.users > 0 {
			busy = append(busy, s)
		} else {
			idle = append(idle, s)
		}
	}
	return busy, idle
}
