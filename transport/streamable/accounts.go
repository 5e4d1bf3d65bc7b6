package streamable

import "sync"

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
