package streamable

import (
	"context"
	"slices"
	"sync"
)

// A room limits the bytes of bodies that one handler holds. The first web.SmallBody bytes of
// each body use a separate budget, so that small bodies never wait for large ones.
type room struct {
	maxBody      int // the maximum size of one body, in bytes
	small, large budget
	stopped      <-chan struct{} // closed when the handler is closed

	mu    sync.Mutex
	of    map[client]*clientRoom // the parts of clients that have a body here
	spare *clientRoom            // an unused part for reuse; may be nil
}

// A clientRoom is the part of a room that one client may use.
type clientRoom struct {
	small, large budget
	bodies       int // how many bodies use this part; guarded by room.mu
}

// enter returns the part of a client. The caller calls leave once.
func (room *room) enter(c client) *clientRoom {
	room.mu.Lock()
	defer room.mu.Unlock()
	own := room.of[c]
	if own == nil {
		own = room.newOf()
		room.of[c] = own
	}
	own.bodies++
	return own
}

// newOf returns the part of a client that holds nothing yet. The caller holds mu.
func (room *room) newOf() *clientRoom {
	if spare := room.spare; spare != nil {
		room.spare = nil
		return spare
	}
	share := shareOf(room.large.limit, room.maxBody)
	return &clientRoom{small: budget{free: share, limit: share}, large: budget{free: share, limit: share}}
}

func (room *room) leave(c client) {
	room.mu.Lock()
	defer room.mu.Unlock()
	own := room.of[c]
	if own.bodies--; own.bodies == 0 {
		delete(room.of, c)
		room.spare = own // no body uses this part
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
	from, own *budget // the budgets of the room and of the client
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
	limit int // the whole amount

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

// claim takes n from the part of a client, and from the whole, as soon as both have so much. It
// reports false, and takes nothing, if ctx ends or the room is closed first.
func (room *room) claim(ctx context.Context, own *clientRoom, n int) bool {
	if c := own.small.claim(n); c != nil && !own.small.wait(ctx, room.stopped, c) {
		return false
	}
	if c := room.small.claim(n); c != nil && !room.small.wait(ctx, room.stopped, c) {
		own.small.give(n)
		return false
	}
	return true
}

// giveBack undoes claim.
func (room *room) giveBack(own *clientRoom, n int) {
	room.small.give(n)
	own.small.give(n)
}

// held returns how many bytes of bodies the room holds.
func (room *room) held() int { return room.small.taken() + room.large.taken() }

func (b *budget) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit - b.free
}

// smallSize is the size up to which a message counts for a separate limit, so that large
// messages never cause the refusal of a small one.
const smallSize = 64 << 10

// frameOverhead is what a queued message counts in addition to its bytes.
const frameOverhead = 256

// accounts limits the bytes of one kind that a handler holds: for all of its clients
// together, and for each of them.
type accounts struct {
	most, mostOfOne int

	mu   sync.Mutex
	held int
	of   map[client]int
}

func newAccounts(most, piece int) *accounts {
	return &accounts{most: most, mostOfOne: shareOf(most, piece), of: make(map[client]int)}
}

// shareOf returns how much one client may have: a quarter of all, but at least one
// piece.
func shareOf(most, piece int) int { return min(most, max(most/4, piece)) }

// charge counts so many more bytes for a client. It reports false, and counts nothing,
// if that would exceed a limit.
func (a *accounts) charge(c client, bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held+bytes > a.most || a.of[c]+bytes > a.mostOfOne {
		return false
	}
	a.held += bytes
	a.of[c] += bytes
	return true
}

// credit counts so many bytes less.
func (a *accounts) credit(c client, bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= bytes
	if a.of[c] -= bytes; a.of[c] <= 0 {
		delete(a.of, c)
	}
}

// unread are the accounts of messages that wait to be written.
type unread struct{ small, large *accounts }

func newUnread(o *HandlerOptions) *unread {
	return &unread{newAccounts(o.MaxUnread, smallSize+frameOverhead), newAccounts(o.MaxUnread, o.MaxFrame+frameOverhead)}
}

func (u *unread) account(frame []byte) (*accounts, int) {
	if len(frame) > smallSize {
		return u.large, len(frame) + frameOverhead
	}
	return u.small, len(frame) + frameOverhead
}

// accountOfPage returns the account for events that are replayed together, and how many
// bytes they count.
func (u *unread) accountOfPage(page []StoredEvent) (*accounts, int) {
	bytes := 0
	for _, e := range page {
		bytes += costOf(e)
	}
	if bytes > smallSize+eventOverhead {
		return u.large, bytes
	}
	return u.small, bytes
}
