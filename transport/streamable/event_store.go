package streamable

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// An EventStore keeps the events that were sent to the clients of sessions, so that
// a client whose connection broke can have those that it missed. It is safe for
// concurrent use. A handler reads the events of a session only for a client that
// names this session, and has its identity.
//
// A store may drop what it likes. If it has dropped what a client missed of the
// response to a request, the handler says so with 410, and the client does not know
// what became of the request.
type EventStore interface {
	// Append keeps an event. It is called in the goroutine that sends, and must not
	// block. It may keep e.Data, which does not change.
	Append(session string, e StoredEvent)

	// After returns the next events of one stream, those whose index is greater than
	// the given one, oldest first, as far as they are kept. It returns as many as
	// have together maxBytes, but at least one if there is one; an event counts its
	// data and 128 bytes. The caller does not change them.
	After(ctx context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]StoredEvent, error)

	// Forget drops the events of a session, which has ended.
	Forget(session string)
}

// A StoredEvent is an event of a stream of a session.
type StoredEvent struct {
	Stream transport.Stream
	Index  uint64 // in its stream, counted from 1 without gaps
	Last   bool   // the stream has ended with it
	Data   []byte // one message
}

// A MemoryStore is an EventStore in memory. The zero value has the default bounds.
//
//   - A session that reaches its bound loses its oldest events.
//   - When the whole store is full, the session that holds most loses its oldest
//     events. A session that holds less than an equal share loses nothing.
//   - An event that is longer than a session may hold is not kept.
//   - An event is dropped when it is older than MaxAge.
type MemoryStore struct {
	// MaxBytes bounds what the store holds; default 64 MiB. An event counts its
	// data and 128 bytes.
	MaxBytes int

	// MaxSessionBytes bounds what it holds of one session; default 4 MiB.
	MaxSessionBytes int

	// MaxAge is how long it holds an event; default one hour. An older one is not
	// returned, and its memory is free at the latest an eighth of MaxAge later.
	MaxAge time.Duration

	mu       sync.Mutex
	timer    *time.Timer // looks for old events; nil while the store is empty
	bytes    int
	appended uint64 // how many events, ever
	sessions map[string]*storedSession
	largest  bySize
}

// A storedSession is what a store holds of one session.
type storedSession struct {
	id      string
	streams map[transport.Stream][]StoredEvent // oldest first
	order   []appended                         // each event, oldest first
	bytes   int
	latest  uint64 // number of the event that was appended last
	place   int    // in the heap
}

// An appended is where an event is, and since when.
type appended struct {
	stream transport.Stream
	at     time.Time
}

// bySize is a heap of sessions. The one that holds most comes first; of those that
// hold as much, the one whose last event is oldest.
type bySize []*storedSession

func (h bySize) Len() int { return len(h) }

func (h bySize) Less(i, j int) bool {
	if h[i].bytes != h[j].bytes {
		return h[i].bytes > h[j].bytes
	}
	return h[i].latest < h[j].latest
}

func (h bySize) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *bySize) Push(s any) {
	s.(*storedSession).place = len(*h)
	*h = append(*h, s.(*storedSession))
}

func (h *bySize) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}

// eventOverhead is what an event costs beside its data, in bytes.
const eventOverhead = 128

func costOf(e StoredEvent) int { return len(e.Data) + eventOverhead }

// Append implements EventStore.
func (m *MemoryStore) Append(session string, e StoredEvent) {
	most, mostOfOne := m.bounds()
	if costOf(e) > mostOfOne {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		if m.sessions == nil {
			m.sessions = make(map[string]*storedSession)
		}
		s = &storedSession{id: session, streams: make(map[transport.Stream][]StoredEvent)}
		m.sessions[session] = s
		heap.Push(&m.largest, s)
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(m.maxAge()/8, m.sweep)
	}
	m.appended++
	s.latest = m.appended
	s.streams[e.Stream] = append(s.streams[e.Stream], e)
	s.order = append(s.order, appended{e.Stream, time.Now()})
	m.grow(s, costOf(e))
	for s.bytes > mostOfOne {
		m.dropOldest(s)
	}
	for m.bytes > most {
		m.dropOldest(m.largest[0])
	}
}

// grow notes that a session holds so much more.
func (m *MemoryStore) grow(s *storedSession, bytes int) {
	s.bytes += bytes
	m.bytes += bytes
	heap.Fix(&m.largest, s.place)
}

func (m *MemoryStore) bounds() (most, mostOfOne int) {
	most = cmp.Or(max(m.MaxBytes, 0), 64<<20)
	return most, min(cmp.Or(max(m.MaxSessionBytes, 0), 4<<20), most)
}

// dropOldest drops one event of a session that has some.
func (m *MemoryStore) dropOldest(s *storedSession) {
	stream := s.order[0].stream
	s.order = s.order[1:]
	events := s.streams[stream]
	cost := costOf(events[0])
	events[0] = StoredEvent{}
	if s.streams[stream] = events[1:]; len(events) == 1 {
		delete(s.streams, stream)
	}
	if m.grow(s, -cost); len(s.order) == 0 {
		m.forget(s)
	}
}

// After implements EventStore.
func (m *MemoryStore) After(_ context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]StoredEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		return nil, nil
	}
	m.dropOld(s, time.Now())
	events := s.streams[stream]
	first, found := slices.BinarySearchFunc(events, index, func(e StoredEvent, index uint64) int { return cmp.Compare(e.Index, index) })
	if found {
		first++
	}
	return slices.Clone(pageOf(events[first:], maxBytes)), nil
}

// pageOf returns the first events, as many as fit a page of so many bytes, but at
// least one if there is one.
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
func (m *MemoryStore) Forget(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil {
		m.bytes -= s.bytes
		m.forget(s)
	}
}

func (m *MemoryStore) forget(s *storedSession) {
	heap.Remove(&m.largest, s.place)
	if delete(m.sessions, s.id); len(m.sessions) == 0 && m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
}

func (m *MemoryStore) maxAge() time.Duration { return cmp.Or(max(m.MaxAge, 0), time.Hour) }

// dropOld drops the events of a session that are too old.
func (m *MemoryStore) dropOld(s *storedSession, now time.Time) {
	for len(s.order) > 0 && now.Sub(s.order[0].at) >= m.maxAge() {
		m.dropOldest(s)
	}
}

// sweep drops all that is too old, and comes back while there is something.
func (m *MemoryStore) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range m.sessions {
		m.dropOld(s, now)
	}
	if m.timer != nil {
		m.timer.Reset(m.maxAge() / 8)
	}
}
