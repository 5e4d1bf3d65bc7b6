package streamable

import (
	"cmp"
	"container/list"
	"context"
	"sync"

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

	// After returns the events of one stream whose index is greater than the given
	// one, oldest first, as far as they are kept. The caller does not change them.
	After(ctx context.Context, session string, stream transport.Stream, index uint64) ([]StoredEvent, error)

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
// When a session reaches its bound, its oldest events go. When the store reaches
// its own, the oldest events of the session that adds one go, as long as that
// session has more than an equal share, and otherwise those of the session whose
// last event is oldest. An event that is above the bound of a session is not kept.
type MemoryStore struct {
	// MaxBytes bounds what the store holds; default 64 MiB. An event counts its
	// data and 128 bytes.
	MaxBytes int

	// MaxSessionBytes bounds what it holds of one session; default 4 MiB.
	MaxSessionBytes int

	mu       sync.Mutex
	bytes    int
	sessions map[string]*storedSession
	byAge    list.List // of *storedSession; the one whose last event is oldest comes first
}

// A storedSession is what a store holds of one session.
type storedSession struct {
	id     string
	events []StoredEvent // oldest first
	bytes  int
	place  *list.Element
}

// eventOverhead is what an event costs beside its data, in bytes.
const eventOverhead = 128

func costOf(e StoredEvent) int { return len(e.Data) + eventOverhead }

// Append implements EventStore.
func (m *MemoryStore) Append(session string, e StoredEvent) {
	most, mostOfOne := m.bounds()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		if m.sessions == nil {
			m.sessions = make(map[string]*storedSession)
		}
		s = &storedSession{id: session}
		s.place = m.byAge.PushBack(s)
		m.sessions[session] = s
	}
	m.byAge.MoveToBack(s.place)
	s.events = append(s.events, e)
	s.bytes += costOf(e)
	m.bytes += costOf(e)
	for s.bytes > mostOfOne {
		m.dropOldest(s)
	}
	for m.bytes > most {
		if s.bytes > most/len(m.sessions) {
			m.dropOldest(s)
			continue
		}
		m.dropOldest(m.byAge.Front().Value.(*storedSession))
	}
}

func (m *MemoryStore) bounds() (most, mostOfOne int) {
	most = cmp.Or(max(m.MaxBytes, 0), 64<<20)
	return most, min(cmp.Or(max(m.MaxSessionBytes, 0), 4<<20), most)
}

// dropOldest drops one event of a session that has some.
func (m *MemoryStore) dropOldest(s *storedSession) {
	cost := costOf(s.events[0])
	s.bytes -= cost
	m.bytes -= cost
	s.events[0] = StoredEvent{}
	if s.events = s.events[1:]; len(s.events) == 0 {
		m.forget(s)
	}
}

// After implements EventStore.
func (m *MemoryStore) After(_ context.Context, session string, stream transport.Stream, index uint64) (after []StoredEvent, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil {
		for _, e := range s.events {
			if e.Stream == stream && e.Index > index {
				after = append(after, e)
			}
		}
	}
	return after, nil
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
	m.byAge.Remove(s.place)
	delete(m.sessions, s.id)
}
