package streamable

import (
	"context"
	"slices"
	"sync"
)

// A room bounds the bodies that one handler holds. The first smallBody bytes of
// each come out of a budget of their own, so that no small body ever waits for a
// large one.
type room struct {
	maxBody      int // bytes of one body
	small, large budget
	stopped      <-chan struct{} // the handler was closed

	mu    sync.Mutex
	of    map[client]*clientRoom // of clients that have a body here
	spare *clientRoom            // of one that has none any more; nil if there is none
}

// A clientRoom is what one client may have of a room.
type clientRoom struct {
	small, large budget
	bodies       int // that use it; guarded by room.mu
}

// enter returns what a client may have. The caller calls leave once.
func (m *room) enter(c client) *clientRoom {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of[c]
	if own == nil {
		own = m.newOf()
		m.of[c] = own
	}
	own.bodies++
	return own
}

// newOf returns what a client may have that has nothing yet. The caller holds mu.
func (m *room) newOf() *clientRoom {
	if spare := m.spare; spare != nil {
		m.spare = nil
		return spare
	}
	share := shareOf(m.large.limit, m.maxBody)
	return &clientRoom{small: budget{free: share, limit: share}, large: budget{free: share, limit: share}}
}

func (m *room) leave(c client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of[c]
	if own.bodies--; own.bodies == 0 {
		delete(m.of, c)
		m.spare = own // it has given everything back
	}
}

func newRoom(maxBody, maxHeld int, stopped <-chan struct{}) *room {
	return &room{
		maxBody: maxBody, stopped: stopped, of: make(map[client]*clientRoom),
		small: budget{free: maxHeld, limit: maxHeld}, large: budget{free: maxHeld, limit: maxHeld},
	}
}

// A holding is what one body has taken of a budget.
type holding struct {
	from, own *budget // of the room, and of the client
	bytes     int
}

// keep gives back all but n bytes.
func (h *holding) keep(n int) {
	if unused := h.bytes - max(0, n); unused > 0 {
		h.from.give(unused)
		h.own.give(unused)
		h.bytes -= unused
	}
}

// A budget is an amount of something that is granted in the order of asking. Its
// zero value has nothing.
type budget struct {
	limit int // what it began with

	mu      sync.Mutex
	free    int
	waiting []*claim
}

type claim struct {
	n       int
	granted chan struct{}
}

// wait waits for what was claimed. It reports false when ctx ends or stop is closed
// first.
func (b *budget) wait(ctx context.Context, stop <-chan struct{}, c *claim) bool {
	select {
	case <-c.granted:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	b.withdraw(c)
	return false
}

// claim takes n and returns nil if there is enough and nobody waits.
func (b *budget) claim(n int) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	return c
}

func (b *budget) withdraw(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.free += c.n
	}
	b.grant()
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

// grant serves the oldest claims as long as there is enough.
func (b *budget) grant() {
	served := 0
	for _, c := range b.waiting {
		if b.free < c.n {
			break
		}
		b.free -= c.n
		close(c.granted)
		served++
	}
	if b.waiting = slices.Delete(b.waiting, 0, served); len(b.waiting) == 0 {
		b.waiting = nil
	}
}
