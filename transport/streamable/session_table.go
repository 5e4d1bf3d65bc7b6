package streamable

import (
	"crypto/rand"
	"encoding/base64"
	"net/netip"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// How a session lives, and where to look:
//
//	handler_links.go    it begins with the link of an initialize request
//	session_table.go    requests find it, and it ends when nobody does for too long
//	session_list.go     or when another client needs its place
//	session_saving.go   its record is stored, if there is a SessionStore
//	session_restore.go  another process goes on with it
//	file_sessions.go    a SessionStore in a folder: its log, its writer, its format

// A sessionTable contains the links of one handler: those of sessions by id, and those
// of messages without a session by acceptor and client. One timer ends links that have
// been idle for too long.
//
// A link is added before its acceptor has it, and found only after (accepted): no request may use a
// session whose server does not know it yet. It is in use from find to leave, and idle otherwise. A
// link that is removed stays in use until its last request has left, which closes unused. The
// table never waits and calls nothing of a link, so its lock is held for moments; the caller ends the
// links that had to make room.
type sessionTable struct {
	places    *share.Pool    // of links
	perPlace  int            // how many bytes of initialize one place has room for
	idleLimit time.Duration  // how long a link may be idle
	expiring  sync.WaitGroup // counts the timer while it is set or its function runs

	mu       sync.Mutex
	sessions map[string]*serverLink
	shared   map[clientKey]*serverLink
	opening  map[clientKey]chan struct{} // shared links that are being opened; each channel is closed when that has finished
	clients  map[share.Client]*population
	networks map[netip.Prefix]*population // the /48 of clients that have one
	all      population
	idle     idleList    // the idle links of all clients
	timer    *time.Timer // for the link that is idle longest
	full     bool        // drain or close was called, so no more links are added
	closed   bool
	refusing map[string]time.Time // until when requests of the sessions that the server has ended since are refused as overloaded
	last     []*serverLink        // the links that close has found
	ended    [sessionEnds]uint64
}

func newSessionTable(o *HandlerOptions) *sessionTable {
	// shared: sessions | HandlerOptions.MaxSessions places of bytesPerPlace | one | an idle session of whom has most ends; if none is idle, 503 and -32050 | `HTTPSample.Ended`, `HTTPSample.Refused`
	return &sessionTable{
		places: share.NewPlaces(o.MaxSessions), perPlace: max(bytesPerPlace, minSessionBytes/o.MaxSessions), idleLimit: o.SessionIdle,
		sessions: make(map[string]*serverLink), shared: make(map[clientKey]*serverLink),
		opening: make(map[clientKey]chan struct{}), clients: make(map[share.Client]*population), networks: make(map[netip.Prefix]*population),
		refusing: make(map[string]time.Time),
	}
}

// longestRefusing is for how long the requests of a session are refused as overloaded after the
// server has ended it in order to shut down. Their sender may not have known of that yet. After that
// time, the session is unknown. Otherwise its client would not begin another one elsewhere, while
// a long call of another client keeps this server running.
const longestRefusing = time.Second

const (
	// bytesPerPlace is how many bytes of initialize a session may keep in one place. Most are shorter than 1 KiB;
	// one that is longer takes several places.
	bytesPerPlace = 4 << 10

	// minSessionBytes is how many bytes all sessions of a table together may always
	// keep.
	minSessionBytes = 1 << 20
)

// newSessionID returns 256 random bits as visible ASCII.
func newSessionID() string {
	var bits [32]byte
	rand.Read(bits[:]) // rand.Read never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// add adds a new link. If its client may have no more places than it has, idle links make room; the caller ends
// these. add reports false if none can make room, or if the table accepts no more links.
func (t *sessionTable) add(l *serverLink) (evicted []*serverLink, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full {
		return nil, false
	}
	if ending := t.shared[l.key]; l.isShared() && ending != nil {
		t.forget(ending, sessionClosed) // its own end would not find it any more
	}
	n := t.placesOf(l)
	if !t.places.Take(l.key.Client, n) {
		// forget takes each link out, so spare cannot find it again, and the loop ends.
		for ok := false; !ok; ok = t.places.Extend(l.key.Client, n) {
			idle := t.all.spare(t.of(l.key.Client), n)
			if idle == nil {
				return evicted, false
			}
			t.forget(idle, sessionEvicted)
			evicted = append(evicted, idle)
		}
	}
	t.count(l.key.Client, 1, n)
	if l.isShared() {
		t.shared[l.key] = l
	} else {
		t.sessions[l.session] = l
	}
	return evicted, true
}

// placesOf returns how many places a link takes.
func (t *sessionTable) placesOf(l *serverLink) int {
	return max(1, (int(l.size)+t.perPlace-1)/t.perPlace)
}

// of returns the links of a client, which may have none yet.
// It does not add them to the table; count does.
func (t *sessionTable) of(c share.Client) *population {
	if p := t.clients[c]; p != nil {
		return p
	}
	within := &t.all
	if wide := c.Wide(); wide.IsValid() {
		within = t.networks[wide]
		if within == nil {
			within = &population{within: &t.all, rank: noRank}
		}
	}
	return &population{within: within, rank: noRank}
}

// count counts so many more links and places of a client.
func (t *sessionTable) count(c share.Client, links, places int) {
	of := t.of(c)
	if of.add(links, places); of.links > 0 {
		t.clients[c] = of
	} else {
		delete(t.clients, c)
	}
	switch network := of.within; {
	case network == &t.all:
	case network.links > 0:
		t.networks[c.Wide()] = network
	default:
		delete(t.networks, c.Wide())
	}
}

// accepted makes the caller the first user of a new link. It reports false if the link
// has already ended.
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

// find returns the link of a session, or nil. The caller uses the link until it calls leave.
func (t *sessionTable) find(session string) *serverLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.sessions[session]
	if l == nil || !l.use.accepted {
		return nil
	}
	t.enter(l)
	return l
}

// drains reports whether drain or close was called.
func (t *sessionTable) drains() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// hasJustEnded reports whether the server has ended a session in order to shut down, a short
// time ago.
func (t *sessionTable) hasJustEnded(session string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.refusing[session])
}

// has reports whether a session is here, and requests may use it.
func (t *sessionTable) has(session string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.sessions[session]
	return l != nil && l.use.accepted
}

// lookup returns the link of a session, even if no request may use it yet; nil if there is
// none. It does not count as a use.
func (t *sessionTable) lookup(session string) *serverLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[session]
}

// confirm notes that the client of a session has used its id. The caller uses the
// link.
func (t *sessionTable) confirm(l *serverLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.use.confirmed = true
}

// findShared returns the link of a client's messages without a session. The caller uses
// the link until it calls leave. If another request is opening that link, findShared
// returns a channel that is closed when it has finished. Otherwise it returns neither,
// and the caller opens the link and then calls opened.
func (t *sessionTable) findShared(key clientKey) (*serverLink, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if opening, ok := t.opening[key]; ok {
		return nil, opening
	}
	if l := t.shared[key]; l != nil && l.use.accepted && !l.isEnding.Load() {
		t.enter(l)
		return l, nil
	}
	t.opening[key] = make(chan struct{})
	return nil, nil
}

// opened finishes what findShared began.
func (t *sessionTable) opened(key clientKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.opening[key])
	delete(t.opening, key)
}

// enter counts a request that uses a link. The caller holds mu.
func (t *sessionTable) enter(l *serverLink) {
	l.use.requests++
	t.notIdle(l)
}

// notIdle takes a link out of the lists of idle links. Its worth, which says in which list it is,
// changes only while it is in use. The caller holds mu.
func (t *sessionTable) notIdle(l *serverLink) {
	if !l.use.idle {
		return
	}
	l.use.idle = false
	t.idle.remove(l, ofTable)
	of := t.clients[l.key.Client]
	of.idle[l.worth()].remove(l, ofClient)
	of.add(0, 0)
}

// nowIdle puts a link that no request uses into these lists. The caller holds mu.
func (t *sessionTable) nowIdle(l *serverLink) {
	l.use.since, l.use.idle = time.Now(), true
	t.idle.append(l, ofTable)
	of := t.clients[l.key.Client]
	of.idle[l.worth()].append(l, ofClient)
	// No number has changed, but the client has more to give.
	of.add(0, 0)
	t.arm()
}

// leave ends the use of a link by one request.
func (t *sessionTable) leave(l *serverLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.use.requests--; l.use.requests > 0 {
		return
	}
	switch {
	// Somebody ends the link, and waits for this.
	case l.use.unused != nil:
		close(l.use.unused)
	case !l.use.removed:
		t.nowIdle(l)
	}
}

// remove removes a link that ends for a reason. It returns a channel that is closed when no
// request uses the link.
func (t *sessionTable) remove(l *serverLink, reason error) (unused <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// During a shutdown the client must not hear 404 for a session that it has just used: it would
	// begin another one here.
	if t.full && reason == transport.ErrClosed && t.sessions[l.session] == l {
		t.refusing[l.session] = time.Now().Add(longestRefusing)
	}
	t.forget(l, sessionClosed)
	l.use.unused = make(chan struct{})
	if l.use.requests == 0 {
		close(l.use.unused)
	}
	return l.use.unused
}

// forget takes a link out of the table. Only the first call counts: a link that made room, or has
// expired, is forgotten before it ends. The caller holds mu.
func (t *sessionTable) forget(l *serverLink, why sessionEnd) {
	l.use.removed = true
	t.notIdle(l)
	switch {
	case t.shared[l.key] == l:
		delete(t.shared, l.key)
	case t.sessions[l.session] == l:
		delete(t.sessions, l.session)
		t.ended[why]++
	default:
		return
	}
	n := t.placesOf(l)
	t.count(l.key.Client, -1, -n)
	t.places.Give(l.key.Client, n)
}

// arm sets the timer for the link that is idle longest.
// One is enough, because the list is in the order in which links became idle. The caller holds mu.
func (t *sessionTable) arm() {
	oldest := t.idle.first
	if t.timer != nil || oldest == nil || t.closed {
		return
	}
	t.expiring.Add(1)
	t.timer = time.AfterFunc(time.Until(oldest.use.since.Add(t.idleLimit)), t.expire)
}

// expire ends the links that have been idle for too long.
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
	// The first one is idle longest, so the search ends at the first that may stay.
	for l := t.idle.first; l != nil; l = t.idle.first {
		if time.Since(l.use.since) < t.idleLimit {
			break
		}
		t.forget(l, sessionExpired)
		expired = append(expired, l)
	}
	t.arm()
	return expired
}

// drain prevents further links, and returns the acceptors of the present ones.
func (t *sessionTable) drain() map[transport.Acceptor]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = true
	acceptors := make(map[transport.Acceptor]struct{})
	for _, l := range t.sessions {
		acceptors[l.key.acceptor] = struct{}{}
	}
	for _, l := range t.shared {
		acceptors[l.key.acceptor] = struct{}{}
	}
	return acceptors
}

// close prevents further links. It returns the links that its first call found.
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
		// If it fires just now, expire counts it down itself.
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

// A sessionEnd says why a session has ended.
type sessionEnd uint8

const (
	sessionClosed  sessionEnd = iota // the client, the server or the program has closed it
	sessionEvicted                   // it was idle, and another session needed its place
	sessionExpired                   // it was idle for too long
	sessionEnds
)
