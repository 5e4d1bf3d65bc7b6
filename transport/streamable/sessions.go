package streamable

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A sessionTable holds the links of one handler: those of sessions by id, those of
// messages without a session by acceptor and client. One timer ends all that stay
// idle.
type sessionTable struct {
	limit     int            // links
	idleLimit time.Duration  // of each
	expiring  sync.WaitGroup // the timer, armed or running

	mu       sync.Mutex
	sessions map[string]*serverLink
	shared   map[clientKey]*serverLink
	idle     struct{ sessions, shared list.List } // of *serverLink, idle longest first
	timer    *time.Timer
	full     bool // drain or close was called: no more links are taken in
	closed   bool
	last     []*serverLink // those that close found

	making sync.Mutex // of a shared link; never taken with mu held
}

// A clientKey is an acceptor and a client of it. Requests of one identity have one
// client, as have those without an identity that come from one network.
type clientKey struct {
	acceptor          Acceptor
	identity, address string
}

func keyOf(a Acceptor, from *transport.Origin) clientKey {
	if from.Identity != "" {
		return clientKey{acceptor: a, identity: from.Identity}
	}
	return clientKey{acceptor: a, address: networkOf(from.RemoteAddr)}
}

// networkOf returns the address without its port. Of an IPv6 address it keeps the
// first 64 bits, since one host can use all addresses behind them.
func networkOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	network, _ := ip.WithZone("").Prefix(64) // 64 bits are never too many
	return network.String()
}

// A use is what the table knows of a link. Its table's mu guards it.
type use struct {
	requests int           // HTTP requests that use the link now
	accepted bool          // it was bound, so that requests may use it
	removed  bool          // no further request may use it
	unused   chan struct{} // closed when a removed link is used by none; made by remove
	place    *list.Element // among the idle links; nil while it is used
	since    time.Time     // when it became idle
}

func newSessionTable(limit int, idleLimit time.Duration) *sessionTable {
	return &sessionTable{
		limit: limit, idleLimit: idleLimit,
		sessions: make(map[string]*serverLink), shared: make(map[clientKey]*serverLink),
	}
}

// newSessionID returns 256 random bits as visible ASCII.
func newSessionID() string {
	var bits [32]byte
	rand.Read(bits[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// add takes a new link in. If the table is full, the shared link that is idle
// longest makes room, since its client loses nothing; else the session that is idle
// longest. The caller ends it. add reports false if no link is idle, or if the table
// takes no more in.
func (t *sessionTable) add(l *serverLink) (evicted *serverLink, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full {
		return nil, false
	}
	if len(t.sessions)+len(t.shared) >= t.limit {
		if evicted = cmp.Or(front(&t.idle.shared), front(&t.idle.sessions)); evicted == nil {
			return nil, false
		}
		t.forget(evicted)
	}
	if l.isShared() {
		t.shared[l.key] = l
	} else {
		t.sessions[l.session] = l
	}
	return evicted, true
}

// accepted makes the caller the first user of a new link, unless it has ended
// already.
func (t *sessionTable) accepted(l *serverLink) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.use.removed {
		return false
	}
	l.use.accepted = true
	t.enter(l)
	return true
}

// find returns the link of a session, or nil. The caller uses the link until it
// calls leave.
func (t *sessionTable) find(session string) *serverLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.sessions[session]
	if l != nil {
		t.enter(l)
	}
	return l
}

// findShared returns the link of a client's messages without a session, or nil.
// The caller uses the link until it calls leave.
func (t *sessionTable) findShared(key clientKey) *serverLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.shared[key]
	if l == nil || !l.use.accepted || latch.IsRaised(l.closing) {
		return nil
	}
	t.enter(l)
	return l
}

func (t *sessionTable) enter(l *serverLink) {
	l.use.requests++
	t.notIdle(l)
}

func (t *sessionTable) notIdle(l *serverLink) {
	if l.use.place != nil {
		t.idleLike(l).Remove(l.use.place)
		l.use.place = nil
	}
}

// idleLike returns the list that holds a link while it is idle.
func (t *sessionTable) idleLike(l *serverLink) *list.List {
	if l.isShared() {
		return &t.idle.shared
	}
	return &t.idle.sessions
}

// front returns the link that is idle longest of a list, or nil.
func front(idle *list.List) *serverLink {
	if oldest := idle.Front(); oldest != nil {
		return oldest.Value.(*serverLink)
	}
	return nil
}

// oldest returns the link that is idle longest, or nil.
func (t *sessionTable) oldest() *serverLink {
	session, shared := front(&t.idle.sessions), front(&t.idle.shared)
	if session == nil || shared != nil && shared.use.since.Before(session.use.since) {
		return shared
	}
	return session
}

// leave ends the use of a link by one request.
func (t *sessionTable) leave(l *serverLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.use.requests--; l.use.requests > 0 {
		return
	}
	switch {
	case l.use.unused != nil:
		close(l.use.unused)
	case !l.use.removed:
		l.use.since, l.use.place = time.Now(), t.idleLike(l).PushBack(l)
		t.arm()
	}
}

// remove takes a link out. It returns a channel that is closed once no request
// uses the link.
func (t *sessionTable) remove(l *serverLink) (unused <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(l)
	l.use.unused = make(chan struct{})
	if l.use.requests == 0 {
		close(l.use.unused)
	}
	return l.use.unused
}

func (t *sessionTable) forget(l *serverLink) {
	l.use.removed = true
	if t.sessions[l.session] == l {
		delete(t.sessions, l.session)
	}
	if t.shared[l.key] == l {
		delete(t.shared, l.key)
	}
	t.notIdle(l)
}

// arm sets the timer for the link that is idle longest.
func (t *sessionTable) arm() {
	oldest := t.oldest()
	if t.timer != nil || oldest == nil || t.closed {
		return
	}
	t.expiring.Add(1)
	t.timer = time.AfterFunc(time.Until(oldest.use.since.Add(t.idleLimit)), t.expire)
}

// expire ends the links that were idle for too long.
func (t *sessionTable) expire() {
	defer t.expiring.Done()
	for _, l := range t.takeExpired() {
		l.end(transport.ErrSessionExpired, 0)
	}
}

func (t *sessionTable) takeExpired() (expired []*serverLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	for l := t.oldest(); l != nil; l = t.oldest() {
		if time.Since(l.use.since) < t.idleLimit {
			break
		}
		t.forget(l)
		expired = append(expired, l)
	}
	t.arm()
	return expired
}

// drain takes no more links in. It returns the acceptors of those that are there.
func (t *sessionTable) drain() map[Acceptor]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = true
	acceptors := make(map[Acceptor]struct{})
	for _, l := range t.sessions {
		acceptors[l.key.acceptor] = struct{}{}
	}
	for _, l := range t.shared {
		acceptors[l.key.acceptor] = struct{}{}
	}
	return acceptors
}

// close takes no more links in. It returns those that the first close found.
func (t *sessionTable) close() (used, idle []*serverLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.full, t.closed = true, true
		for _, l := range t.sessions {
			t.last = append(t.last, l)
		}
		for _, l := range t.shared {
			t.last = append(t.last, l)
		}
		if t.timer != nil && t.timer.Stop() {
			t.expiring.Done()
		}
	}
	for _, l := range t.last {
		if l.use.requests > 0 {
			used = append(used, l)
		} else {
			idle = append(idle, l)
		}
	}
	return used, idle
}
