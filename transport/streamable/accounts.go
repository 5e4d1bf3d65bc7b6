package streamable

import "sync"

// smallSize is the size up to which a message is charged to a bound of its own, so
// that none of them is refused for large ones.
const smallSize = 64 << 10

// frameOverhead is what a queued message counts beside its bytes.
const frameOverhead = 256

// accounts bounds what a handler holds of one kind for all of its clients, and for
// each of them, in bytes.
type accounts struct {
	most, mostOfOne int

	mu   sync.Mutex
	held int
	of   map[client]int
}

func newAccounts(most, piece int) *accounts {
	return &accounts{most: most, mostOfOne: shareOf(most, piece), of: make(map[client]int)}
}

// shareOf is how much one client may have: a quarter of all, but one piece in any
// case.
func shareOf(most, piece int) int { return min(most, max(most/4, piece)) }

// charge holds so many bytes more, unless that is too much.
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

// credit gives bytes back.
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

// accountOfPage returns the account of events that are replayed together, and what
// they count.
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
