package streamable

import (
	"cmp"
	"time"
)

// A use is what the table knows about a link. The table's mu guards it.
type use struct {
	requests  int32         // HTTP requests that use the link now
	accepted  bool          // the acceptor bound it, so requests may use it
	confirmed bool          // the client has used the session id that it got
	removed   bool          // no further request may use it
	idle      bool          // no request uses it, and it is in the lists of idle links
	unused    chan struct{} // closed when no request uses the removed link; created by remove
	since     time.Time     // when it became idle
	places    [2]idlePlace  // in these lists: of the table, and of the client
}

// An amount is a number of links, and the bytes that their sessions keep of initialize,
// which contains what the client says about itself.
type amount struct{ links, bytes int }

// A population is a set of links: all of a table, or all of a client. The idle ones are
// in lists, where the one that is idle longest is first.
type population struct {
	amount
	idle struct{ unconfirmed, shared, sessions idleList }
}

// exceeds reports whether one more link would be too much.
func (p *population) exceeds(most amount, l *serverLink) bool {
	return p.links >= most.links || p.bytes+int(l.size) > most.bytes
}

func (p *population) add(l *serverLink, n int) {
	p.links += n
	p.bytes += n * int(l.size)
}

// idleLike returns the list for a link while it is idle.
func (p *population) idleLike(l *serverLink) *idleList {
	switch {
	case l.isShared():
		return &p.idle.shared
	case !l.use.confirmed:
		return &p.idle.unconfirmed
	default:
		return &p.idle.sessions
	}
}

// dispensable returns the idle link that makes room first: a session that its client has
// never used; then a shared link, whose client loses nothing; then the session that is
// idle longest. It returns nil if no link is idle.
func (p *population) dispensable() *serverLink {
	return cmp.Or(p.idle.unconfirmed.first, p.idle.shared.first, p.idle.sessions.first)
}

// oldest returns the link that is idle longest, or nil.
func (p *population) oldest() (oldest *serverLink) {
	for _, l := range []*serverLink{p.idle.unconfirmed.first, p.idle.shared.first, p.idle.sessions.first} {
		if l != nil && (oldest == nil || l.use.since.Before(oldest.use.since)) {
			oldest = l
		}
	}
	return oldest
}

// An idleList contains idle links; the one that is idle longest is first. An idle link
// is in one list of the table and in one of its client. It stores its places in them
// itself, because it is added and removed with each request. The zero value is empty.
type idleList struct{ first, last *serverLink }

// An idlePlace is the place of a link in an idleList: between its neighbours.
type idlePlace struct{ before, after *serverLink }

// These say which of a link's two places a list uses.
const (
	ofTable = iota
	ofClient
)

// append adds a link that has just become idle.
func (d *idleList) append(l *serverLink, which int) {
	l.use.places[which].before = d.last
	if d.last == nil {
		d.first = l
	} else {
		d.last.use.places[which].after = l
	}
	d.last = l
}

// remove removes a link that is in the list.
func (d *idleList) remove(l *serverLink, which int) {
	at := &l.use.places[which]
	if at.before == nil {
		d.first = at.after
	} else {
		at.before.use.places[which].after = at.after
	}
	if at.after == nil {
		d.last = at.before
	} else {
		at.after.use.places[which].before = at.before
	}
	*at = idlePlace{}
}
