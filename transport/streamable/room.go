package streamable

import (
	"context"
	"slices"
	"sync"
)

// A room limits the bytes of bodies that one handler holds. The first web.SmallBody bytes of
// each body use a separate budget, so that small bodies never wait for large ones.
type room struct {
	maxBody      int // bytes of one body
	small, large budget
	stopped      <-chan struct{} // the handler was closed

	mu    sync.Mutex
	of    map[client]*clientRoom // of clients with a body here
	spare *clientRoom            // of a client that no longer has one; may be nil
}

// A clientRoom is the part of a room that one client may use.
type clientRoom struct {
	small, large budget
	bodies       int // that use it; guarded by room.mu
}

// enter returns the part of a client. The caller calls leave once.
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

// newOf returns the part of a client that holds nothing yet. The caller holds mu.
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
		m.spare = own // nothing of it is in use
	}
}

func newRoom(maxBody, maxHeld int, stopped <-chan struct{}) *room {
	return &room{
		maxBody: maxBody, stopped: stopped, of: make(map[client]*clientRoom),
		small: budget{free: maxHeld, limit: maxHeld}, large: budget{free: maxHeld, limit: maxHeld},
	}
}

// A holding is what one body has taken from a budget.
type holding struct {
	from, own *budget // of the room, and of the client
	bytes     int
}

// keep releases all but n bytes.
func (h *holding) keep(n int) {
	if unused := h.bytes - max(0, n); unused > 0 {
		h.from.give(unused)
		h.own.give(unused)
		h.bytes -= unused
	}
}

// A budget is an amount that is granted in the order of the claims. Its zero value has
// nothing to grant.
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

// wait waits until a claim is granted. It reports false if ctx ends or stop is closed
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

// claim takes n and returns nil, if there is enough and nobody waits.
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

// grant grants the oldest claims, as long as there is enough.
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
