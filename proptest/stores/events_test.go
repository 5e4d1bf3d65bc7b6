package stores_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A brokenEvents is a MemoryStore that is broken in one way.
type brokenEvents struct {
	streamable.MemoryStore
	eventFlaws
}

// eventFlaws replace methods of a MemoryStore; nil: the method is right.
type eventFlaws struct {
	append func(*streamable.MemoryStore, string, streamable.StoredEvent)
	after  func(*streamable.MemoryStore, string, transport.Stream, uint64, int) []streamable.StoredEvent
	forget func(*streamable.MemoryStore, string)
}

func (s *brokenEvents) Append(session string, e streamable.StoredEvent) {
	if s.append != nil {
		s.append(&s.MemoryStore, session, e)
		return
	}
	s.MemoryStore.Append(session, e)
}

func (s *brokenEvents) After(ctx context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]streamable.StoredEvent, error) {
	if s.after != nil {
		return s.after(&s.MemoryStore, session, stream, index, maxBytes), nil
	}
	return s.MemoryStore.After(ctx, session, stream, index, maxBytes)
}

func (s *brokenEvents) Forget(session string) {
	if s.forget != nil {
		s.forget(&s.MemoryStore, session)
		return
	}
	s.MemoryStore.Forget(session)
}

func eventsOf(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
	events, _ := m.After(context.Background(), session, stream, index, maxBytes) // a MemoryStore does not fail
	return events
}

// Guarantees: G-0080.3
func TestEventStoreContract(t *testing.T) {
	stores.EventStoreContract(t, func(*testing.T) stores.Events {
		m := new(streamable.MemoryStore)
		return stores.Events{A: m, B: m, Keeps: 1000}
	}, proptest.ContractOptions{})
	t.Run("a store that drops events", func(t *testing.T) {
		stores.EventStoreContract(t, func(*testing.T) stores.Events {
			m := &streamable.MemoryStore{MaxBytes: 1500}
			return stores.Events{A: m, B: m}
		}, proptest.ContractOptions{})
	})
}

// The suite fails on a store that breaks the contract.
//
// Guarantees: G-0080.3
func TestEventStoreContractSeesBreaches(t *testing.T) {
	with := func(flaws eventFlaws) func(*testing.T) {
		return func(t *testing.T) {
			stores.EventStoreContract(t, func(*testing.T) stores.Events {
				m := &brokenEvents{eventFlaws: flaws}
				return stores.Events{A: m, B: m, Keeps: 1000}
			}, proptest.ContractOptions{})
		}
	}
	after := func(after func(*streamable.MemoryStore, string, transport.Stream, uint64, int) []streamable.StoredEvent) func(*testing.T) {
		return with(eventFlaws{after: after})
	}
	appendTo := func(append func(*streamable.MemoryStore, string, streamable.StoredEvent)) func(*testing.T) {
		return with(eventFlaws{append: append})
	}
	wantCaught(t, []violation{
		{"nothing is stored", appendTo(func(*streamable.MemoryStore, string, streamable.StoredEvent) {}), "and After returned 0"},
		{"the last mark is lost", appendTo(func(m *streamable.MemoryStore, session string, e streamable.StoredEvent) {
			e.Last = false
			m.Append(session, e)
		}), "was not appended to this stream"},
		{"data is cleaned", appendTo(func(m *streamable.MemoryStore, session string, e streamable.StoredEvent) {
			e.Data = bytes.TrimSpace(e.Data)
			m.Append(session, e)
		}), "was not appended to this stream"},
		{"sessions share their events", appendTo(func(m *streamable.MemoryStore, session string, e streamable.StoredEvent) {
			m.Append(session[:1], e)
		}), "or its events are not in order"},
		{"ids are compared without case", with(eventFlaws{
			append: func(m *streamable.MemoryStore, session string, e streamable.StoredEvent) {
				m.Append(string(bytes.ToLower([]byte(session))), e)
			},
			after: func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
				return eventsOf(m, string(bytes.ToLower([]byte(session))), stream, index, maxBytes)
			},
		}), "events are not in order"},
		{"the named event is repeated", after(func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
			return eventsOf(m, session, stream, max(index, 1)-1, maxBytes)
		}), "or its events are not in order"},
		{"the newest come first", after(func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
			events := eventsOf(m, session, stream, index, maxBytes)
			slices.Reverse(events)
			return events
		}), "or its events are not in order"},
		{"events come from another stream", after(func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
			return eventsOf(m, session, max(stream, 1), index, maxBytes)
		}), "was not appended to this stream"},
		{"a page is too long", after(func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
			return eventsOf(m, session, stream, index, maxBytes+128)
		}), "returned more than"},
		{"a large event is never returned", after(func(m *streamable.MemoryStore, session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
			events := eventsOf(m, session, stream, index, maxBytes)
			if len(events) == 1 && len(events[0].Data)+128 > maxBytes {
				return nil
			}
			return events
		}), "and After returned 0"},
		{"an ended session keeps its events", with(eventFlaws{forget: func(*streamable.MemoryStore, string) {}}), "was forgotten, and has"},
		{"all sessions end together", with(eventFlaws{forget: func(m *streamable.MemoryStore, _ string) {
			for _, session := range []string{"a", "b", "c", "s", "t"} {
				m.Forget(session)
			}
		}}), "and After returned 0"},
	})
}
