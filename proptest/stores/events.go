package stores

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Events are the stores that EventStoreContract checks. No event is stored yet.
type Events struct {
	// A and B share what they store, as two nodes do. They may be the same.
	A, B streamable.EventStore

	// Keeps is how many events of at most 1 KiB the stores keep for each of ten sessions. 0:
	// any event may be dropped, so the suite cannot tell whether the stores keep any.
	Keeps int

	// Settle returns when both stores show what either of them was told. Nil: they do so at
	// once.
	Settle func()
}

// EventStoreContract checks the contract of streamable.EventStore.
//
// Guarantees: G-0080.3
func EventStoreContract(t *testing.T, open func(t *testing.T) Events, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *events { return openEvents(t, tb, open, o) }
	contract(t, with, []clause[*events]{
		{"events come back as they were", (*events).areUnchanged},
		{"a page is limited, and has at least one event", (*events).pagesAreLimited},
		{"sessions and streams are told apart", (*events).streamsAreDistinct},
		{"a session that has ended has no events", (*events).forgetDrops},
		{"streams are written at the same time", (*events).writtenTogether},
	}, "events agree with a map", (*events).agreeWithMap)
}

// events are the Events under test, and what was appended to them.
type events struct {
	Events
	t     cleanupTB
	ctx   context.Context                     // ends the test if something hangs
	added map[string][]streamable.StoredEvent // by session, in the order in which they were appended
	ended map[string]bool                     // the sessions that were forgotten
	calls int
}

func openEvents(t *testing.T, tb cleanupTB, open func(*testing.T) Events, o proptest.ContractOptions) *events {
	s := &events{Events: open(t), t: tb, ctx: guarded(tb, o), added: make(map[string][]streamable.StoredEvent), ended: make(map[string]bool)}
	if s.Settle == nil {
		s.Settle = func() {}
	}
	return s
}

// next returns A or B in turn.
func (s *events) next() streamable.EventStore {
	if s.calls++; s.calls%2 == 0 {
		return s.A
	}
	return s.B
}

// append appends the next event of a stream.
func (s *events) append(session string, stream transport.Stream, data []byte, last bool) {
	e := streamable.StoredEvent{Stream: stream, Index: uint64(len(s.of(session, stream)) + 1), Data: data, Last: last}
	s.added[session] = append(s.added[session], e)
	s.next().Append(session, e)
}

// of returns the events that were appended to a stream.
func (s *events) of(session string, stream transport.Stream) (all []streamable.StoredEvent) {
	for _, e := range s.added[session] {
		if e.Stream == stream {
			all = append(all, e)
		}
	}
	return all
}

func (s *events) forget(session string) {
	delete(s.added, session)
	s.ended[session] = true
	s.next().Forget(session)
}

// costOf returns the size of an event, as EventStore defines it.
func costOf(e streamable.StoredEvent) int { return len(e.Data) + 128 }

// check reads a page of a stream, and checks it.
func (s *events) check(session string, stream transport.Stream, index uint64, maxBytes int) []streamable.StoredEvent {
	s.t.Helper()
	got, err := s.next().After(s.ctx, session, stream, index, maxBytes)
	if err != nil {
		s.t.Fatalf("After got %v", err)
	}
	if s.ended[session] && len(got) > 0 {
		s.t.Fatalf("session %q was forgotten, and has %d events", session, len(got))
	}
	all, bytes := s.of(session, stream), 0
	var want []streamable.StoredEvent
	for _, e := range all[min(int(index), len(all)):] { // number n has index n-1
		if bytes += costOf(e); bytes <= maxBytes || len(want) == 0 {
			want = append(want, e)
		} else {
			break
		}
	}
	s.checkPage(got, all, index, maxBytes)
	if len(s.added[session]) <= s.Keeps && len(got) != len(want) {
		s.t.Fatalf("%d events of stream %d follow number %d within %d bytes, and After returned %d", len(want), stream, index, maxBytes, len(got))
	}
	return got
}

// checkPage checks a page of a stream whose events are all.
func (s *events) checkPage(got, all []streamable.StoredEvent, index uint64, maxBytes int) {
	s.t.Helper()
	bytes := 0
	for n, e := range got {
		switch bytes += costOf(e); {
		case e.Index <= index:
			s.t.Fatalf("After %d returned number %d, or its events are not in order", index, e.Index)
		case e.Index > uint64(len(all)) || !sameEvent(e, all[e.Index-1]):
			s.t.Fatalf("After returned an event that was not appended to this stream: number %d, last %t, %.80q", e.Index, e.Last, e.Data)
		case n > 0 && bytes > maxBytes:
			s.t.Fatalf("After returned more than %d bytes", maxBytes)
		}
		index = e.Index
	}
}

func sameEvent(a, b streamable.StoredEvent) bool {
	return a.Stream == b.Stream && a.Index == b.Index && a.Last == b.Last && bytes.Equal(a.Data, b.Data)
}

const pageSize = 1 << 20

func (s *events) areUnchanged() {
	for _, data := range []string{`{"jsonrpc":"2.0"}`, "", "\x00\xff\n\r\n", `"é\u0041"`, string(bytes.Repeat([]byte("x"), 1024))} {
		s.append("s", 1, []byte(data), false)
	}
	s.append("s", 1, []byte("last"), true)
	s.Settle()
	for index := range uint64(7) {
		s.check("s", 1, index, pageSize)
	}
	s.check("s", 1, 1<<60, pageSize)
}

func (s *events) pagesAreLimited() {
	for n := range 12 {
		s.append("s", 1, bytes.Repeat([]byte("x"), 1+80*n), false)
	}
	s.Settle()
	for _, maxBytes := range []int{0, 1, 128, 129, 300, 338, 1000, 2000, 4000, pageSize} {
		for index := uint64(0); ; { // read all pages
			page := s.check("s", 1, index, maxBytes)
			if len(page) == 0 {
				break
			}
			index = page[len(page)-1].Index
		}
	}
}

func (s *events) streamsAreDistinct() {
	sessions, streams := []string{"a", "A", "a.b", "a/b", "*", ">", "a\x00", "é"}, []transport.Stream{transport.Main, 1, 2, 1 << 40}
	for n := range 3 {
		for _, session := range sessions {
			for _, stream := range streams {
				s.append(session, stream, fmt.Appendf(nil, "%d of %d of %q", n, stream, session), n == 2)
			}
		}
	}
	s.Settle()
	for _, session := range append(sessions, "b", "") {
		for _, stream := range append(streams, 3) {
			s.check(session, stream, 0, pageSize)
			s.check(session, stream, 2, pageSize)
		}
	}
}

func (s *events) forgetDrops() {
	for _, session := range []string{"a", "b", "c"} {
		for stream := range transport.Stream(3) {
			s.append(session, stream, []byte(session), true)
		}
	}
	s.Settle()
	s.forget("a")
	s.forget("a")
	s.forget("never seen")
	s.Settle()
	for _, session := range []string{"a", "b", "c"} {
		for stream := range transport.Stream(3) {
			s.check(session, stream, 0, pageSize)
		}
	}
}

// writtenTogether appends to several streams while they are read.
func (s *events) writtenTogether() {
	const streams, most = 4, 8
	all := make([][]streamable.StoredEvent, streams)
	for stream := range all {
		for n := range most {
			e := streamable.StoredEvent{Stream: transport.Stream(stream), Index: uint64(n + 1), Last: n == most-1, Data: fmt.Appendf(nil, "%d of %d", n, stream)}
			all[stream] = append(all[stream], e)
			s.added["s"] = append(s.added["s"], e)
		}
	}
	var group sync.WaitGroup
	for stream := range all {
		to := s.next()
		group.Go(func() {
			for _, e := range all[stream] {
				to.Append("s", e)
			}
		})
		group.Go(func() {
			for range most {
				got, err := to.After(s.ctx, "s", transport.Stream(stream), 0, pageSize)
				if err != nil || len(got) > most || slices.ContainsFunc(got, func(e streamable.StoredEvent) bool { return e.Index > most || !sameEvent(e, all[stream][e.Index-1]) }) {
					s.t.Errorf("After got %d events, %v, which are not those of stream %d", len(got), err, stream)
				}
			}
		})
	}
	group.Wait()
	s.Settle()
	for stream := range all {
		s.check("s", transport.Stream(stream), 0, pageSize)
	}
}

// agreeWithMap appends, reads and forgets at random.
func (s *events) agreeWithMap(rt *rapid.T) {
	session := func(rt *rapid.T) string { return rapid.SampledFrom([]string{"s", "t"}).Draw(rt, "session") }
	stream := func(rt *rapid.T) transport.Stream {
		return transport.Stream(rapid.IntRange(0, 2).Draw(rt, "stream"))
	}
	rt.Repeat(map[string]func(*rapid.T){
		"append": func(rt *rapid.T) {
			if name := session(rt); !s.ended[name] {
				s.append(name, stream(rt), rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "data"), rapid.Bool().Draw(rt, "last"))
			}
		},
		"read": func(rt *rapid.T) {
			s.Settle()
			name, of := session(rt), stream(rt)
			index := rapid.Uint64Range(0, uint64(len(s.of(name, of))+1)).Draw(rt, "index")
			s.check(name, of, index, rapid.IntRange(0, 2000).Draw(rt, "bytes"))
		},
		"forget": func(rt *rapid.T) {
			s.Settle()
			s.forget(session(rt))
		},
	})
}
