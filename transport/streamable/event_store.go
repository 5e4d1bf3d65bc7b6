package streamable

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// An EventStore keeps the events that a handler sent to the clients of sessions. A
// client whose connection broke then receives the events that it missed.
// Implementations must be safe for concurrent use. The handler reads the events of a
// session only for a client that names this session and has its identity.
//
// A store may drop any event. If a client comes back for a response and the store has
// dropped a part of it, the response is 410, and the client cannot know what became
// of its request.
type EventStore interface {
	// Append stores an event. The handler calls it on the goroutine that sends, so it
	// must not block. It may keep e.Data, which does not change.
	Append(session string, e StoredEvent)

	// After returns the stored events of one stream whose index is greater than the
	// given one, oldest first. It returns at most maxBytes of them, but at least one
	// if there is one. The size of an event is that of its data plus 128 bytes. The
	// handler does not change the events.
	After(ctx context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]StoredEvent, error)

	// Forget drops the events of a session that has ended. It is not called for a session
	// that goes on in another process.
	Forget(session string)
}

// A StoredEvent is an event of a stream of a session.
type StoredEvent struct {
	Stream transport.Stream
	Index  uint64 // the number of the event within its stream, from 1 without gaps
	Last   bool   // the stream ended with this event
	Data   []byte // one message

	// Client is whose share of a store the event uses: the identity of the client that the session belongs to or, if it
	// is anonymous, its network. It matters only to Append, and not to After.
	Client string
}

// A MemoryStore is an EventStore in memory. The zero value has the default bounds.
//
//   - If a session reaches MaxSessionBytes, its oldest events are dropped.
//   - If the store reaches MaxBytes, the oldest events of the largest session of the client that holds most are
//     dropped. A client that uses less than an equal share loses nothing. The clients of one /48 of IPv6 count as one.
//   - An event larger than MaxSessionBytes is not stored.
//   - An event older than MaxAge is dropped.
type MemoryStore struct {
	// MaxBytes limits the size of the store; default 16 MiB. The size of an event is
	// that of its data plus 128 bytes.
	MaxBytes int

	// MaxSessionBytes limits the size of one session's events; default 4 MiB.
	MaxSessionBytes int

	// MaxAge is how long the store keeps an event; default one hour. After never
	// returns an older event. The store frees its memory at most an eighth of MaxAge
	// later.
	MaxAge time.Duration

	mu       sync.Mutex
	timer    *time.Timer // removes old events; nil while the store is empty
	appended uint64      // how many events were appended in total
	sessions map[string]*storedSession
	clients  map[string]*holder
	all      holder
}

// A storedSession is what a store holds for one session.
type storedSession struct {
	holder
	streams map[transport.Stream][]StoredEvent // the events of each stream, oldest first
	order   []appended                         // all events, oldest first
}

// An appended says where an event is, and when it was stored.
type appended struct {
	stream transport.Stream
	at     time.Time
}

// A holder is a level of the tree that counts events: a session, the client with all its sessions, the /48 network of
// that client if it has one, and the store as a whole.
type holder struct {
	name    string
	session *storedSession // nil if the holder is no session
	within  *holder        // the level above; nil for the whole store
	parts   largest
	bytes   int
	latest  uint64 // the number of the newest event
	place   int    // the index in within.parts
}

// largest is a heap of holders. The one that holds most comes first; of several with the same size, the one whose
// newest event is oldest.
type largest []*holder

func (h largest) Len() int { return len(h) }

func (h largest) Less(i, j int) bool {
	if h[i].bytes != h[j].bytes {
		return h[i].bytes > h[j].bytes
	}
	return h[i].latest < h[j].latest
}

func (h largest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *largest) Push(s any) {
	s.(*holder).place = len(*h)
	*h = append(*h, s.(*holder))
}

func (h *largest) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}

// eventOverhead is how many bytes an event counts in addition to its data.
const eventOverhead = 128

func costOf(e StoredEvent) int { return len(e.Data) + eventOverhead }

// Append implements EventStore.
func (store *MemoryStore) Append(session string, e StoredEvent) {
	most, mostOfOne := store.bounds()
	if costOf(e) > mostOfOne {
		return
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	s := store.sessions[session]
	if s == nil {
		s = store.add(session, e.Client)
	}
	// It is set only while there are events, so a store that is not used any more needs no Close.
	if store.timer == nil {
		store.timer = time.AfterFunc(store.maxAge()/8, store.sweep)
	}
	store.appended++
	for h := &s.holder; h != nil; h = h.within {
		h.latest = store.appended
	}
	s.streams[e.Stream] = append(s.streams[e.Stream], e)
	s.order = append(s.order, appended{e.Stream, time.Now()})
	s.grow(costOf(e))
	// The oldest events make room for the new one.
	for s.bytes > mostOfOne {
		store.dropOldest(s)
	}
	for store.all.bytes > most {
		store.dropOldest(store.all.most())
	}
}

// add adds a session of a client.
func (store *MemoryStore) add(session, client string) *storedSession {
	if store.sessions == nil {
		store.sessions, store.clients = make(map[string]*storedSession), make(map[string]*holder)
	}
	of := &store.all
	if wide := (share.Client{Network: client}).Wide(); wide.IsValid() {
		of = store.client("networks "+wide.String(), of)
	}
	s := &storedSession{streams: make(map[transport.Stream][]StoredEvent)}
	s.holder = holder{name: session, session: s, within: store.client("client "+client, of)}
	heap.Push(&s.within.parts, &s.holder)
	store.sessions[session] = s
	return s
}

// client returns the holder of a name. If there is none, it is added within another one.
func (store *MemoryStore) client(name string, within *holder) *holder {
	h := store.clients[name]
	if h == nil {
		h = &holder{name: name, within: within}
		store.clients[name] = h
		heap.Push(&within.parts, h)
	}
	return h
}

// most returns the largest session of the client that holds most.
func (h *holder) most() *storedSession {
	for h.session == nil {
		h = h.parts[0]
	}
	return h.session
}

// grow counts so many more bytes.
// Each level is ranked again, because its place depends on its bytes.
func (h *holder) grow(bytes int) {
	for ; h != nil; h = h.within {
		if h.bytes += bytes; h.within != nil {
			heap.Fix(&h.within.parts, h.place)
		}
	}
}

func (store *MemoryStore) bounds() (most, mostOfOne int) {
	// shared: events for clients that come back | MemoryStore.MaxBytes bytes | – | the oldest of whom holds most are dropped; their client gets 410 | –
	most = cmp.Or(max(store.MaxBytes, 0), 16<<20)
	return most, min(cmp.Or(max(store.MaxSessionBytes, 0), 4<<20), most)
}

// dropOldest drops the oldest event of a session, which must have one.
func (store *MemoryStore) dropOldest(s *storedSession) {
	stream := s.order[0].stream
	s.order = s.order[1:]
	events := s.streams[stream]
	cost := costOf(events[0])
	events[0] = StoredEvent{}
	if s.streams[stream] = events[1:]; len(events) == 1 {
		delete(s.streams, stream)
	}
	if s.grow(-cost); len(s.order) == 0 {
		store.forget(s)
	}
}

// After implements EventStore.
func (store *MemoryStore) After(_ context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]StoredEvent, error) {
	store.mu.Lock()
	defer store.mu.Unlock()
	s := store.sessions[session]
	if s == nil {
		return nil, nil
	}
	store.dropOld(s, time.Now())
	events := s.streams[stream]
	first, found := slices.BinarySearchFunc(events, index, func(e StoredEvent, index uint64) int { return cmp.Compare(e.Index, index) })
	if found {
		first++
	}
	return slices.Clone(pageOf(events[first:], maxBytes)), nil
}

// pageOf returns the first events, up to maxBytes, but at least one if there is one.
func pageOf(events []StoredEvent, maxBytes int) []StoredEvent {
	bytes := 0
	for n, e := range events {
		if bytes += costOf(e); bytes > maxBytes && n > 0 {
			return events[:n]
		}
	}
	return events
}

// Forget implements EventStore.
func (store *MemoryStore) Forget(session string) {
	store.mu.Lock()
	defer store.mu.Unlock()
	if s := store.sessions[session]; s != nil {
		s.grow(-s.bytes)
		store.forget(s)
	}
}

// forget removes a session without events, and the levels above that hold nothing else.
func (store *MemoryStore) forget(s *storedSession) {
	heap.Remove(&s.within.parts, s.place)
	for h := s.within; h.within != nil && len(h.parts) == 0; h = h.within {
		heap.Remove(&h.within.parts, h.place)
		delete(store.clients, h.name)
	}
	if delete(store.sessions, s.name); len(store.sessions) == 0 && store.timer != nil {
		store.timer.Stop()
		store.timer = nil
	}
}

func (store *MemoryStore) maxAge() time.Duration { return cmp.Or(max(store.MaxAge, 0), time.Hour) }

// dropOld drops the events of a session that are too old.
func (store *MemoryStore) dropOld(s *storedSession, now time.Time) {
	for len(s.order) > 0 && now.Sub(s.order[0].at) >= store.maxAge() {
		store.dropOldest(s)
	}
}

// sweep drops all events that are too old. It sets the timer again while events remain.
func (store *MemoryStore) sweep() {
	store.mu.Lock()
	defer store.mu.Unlock()
	now := time.Now()
	for _, s := range store.sessions {
		store.dropOld(s, now)
	}
	if store.timer != nil {
		store.timer.Reset(store.maxAge() / 8)
	}
}
