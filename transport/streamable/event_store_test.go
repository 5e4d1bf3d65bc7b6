package streamable

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

func stored(stream transport.Stream, index uint64, size int) StoredEvent {
	return StoredEvent{Stream: stream, Index: index, Data: make([]byte, size-eventOverhead)}
}

func indexes(t *testing.T, m *MemoryStore, session string, stream transport.Stream, after uint64) string {
	t.Helper()
	events, err := m.After(t.Context(), session, stream, after, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, e := range events {
		got = append(got, e.Index)
	}
	return fmt.Sprint(got)
}

// A store keeps the events of each session and stream separate, and Forget drops those
// of one session.
//
// Guarantees: G-0033.3
func TestStoreKeepsStreamsApart(t *testing.T) {
	m := new(MemoryStore)
	for n := range uint64(3) {
		m.Append("a", stored(1, n+1, 200))
		m.Append("a", stored(2, n+1, 200))
		m.Append("b", stored(1, n+1, 200))
	}
	if got := indexes(t, m, "a", 1, 1); got != "[2 3]" {
		t.Errorf("after 1: %s", got)
	}
	if got := indexes(t, m, "c", 1, 0); got != "[]" {
		t.Errorf("a session that has none: %s, want %q", got, "[]")
	}
	m.Forget("a")
	if got := indexes(t, m, "a", 2, 0) + indexes(t, m, "b", 1, 0); got != "[][1 2 3]" {
		t.Errorf("after Forget: %s", got)
	}
	m.Forget("a")
	m.Forget("b")
	if m.bytes != 0 || len(m.sessions) != 0 || m.largest.Len() != 0 {
		t.Errorf("%d bytes and %d sessions are left, want none", m.bytes, len(m.sessions))
	}
}

// The events of one session, and of all sessions together, are limited in bytes.
//
// Guarantees: G-0033.4
func TestStoreIsBounded(t *testing.T) {
	m := &MemoryStore{MaxBytes: 10_000, MaxSessionBytes: 2_000}
	for n := range uint64(100) {
		m.Append("a", stored(1, n+1, 500))
	}
	if got := indexes(t, m, "a", 1, 0); got != "[97 98 99 100]" {
		t.Errorf("at the limit of a session: got %s, want %q", got, "[97 98 99 100]")
	}
	m.Append("a", stored(1, 101, 3_000))
	if got := indexes(t, m, "a", 1, 0); got != "[97 98 99 100]" || m.bytes != 2_000 {
		t.Errorf("after an event above the limit: got %s, %d bytes", got, m.bytes)
	}
}

// Events that fill a limit exactly are kept.
//
// Guarantees: G-0033.4
func TestStoreIsFilled(t *testing.T) {
	m := &MemoryStore{MaxBytes: 1_000, MaxSessionBytes: 500}
	m.Append("a", stored(1, 1, 500))
	m.Append("b", stored(1, 1, 250))
	m.Append("b", stored(1, 2, 250))
	if got := indexes(t, m, "a", 1, 0) + indexes(t, m, "b", 1, 0); got != "[1][1 2]" {
		t.Errorf("got %s, want %q", got, "[1][1 2]")
	}
	for n := range transport.Stream(100) {
		m.Append("b", stored(n+2, 1, 250))
	}
	if n := len(m.sessions["b"].streams); n != 2 {
		t.Errorf("got %d streams for two events, want 2", n)
	}
	m.Forget("b")
	if len(m.largest) != 1 || m.largest[0].id != "a" || m.bytes != 500 {
		t.Errorf("after Forget: got %d sessions and %d bytes, want those of session a only", len(m.largest), m.bytes)
	}
}

// Among sessions that hold equally much, the one without new events for longest loses
// its events first.
//
// Guarantees: G-0033.4
func TestStoreDropsFromTheQuietestSession(t *testing.T) {
	m := &MemoryStore{MaxBytes: 1_200}
	for _, session := range []string{"a", "b", "c", "a", "c", "b"} {
		m.Append(session, stored(1, uint64(len(m.sessions)+1), 200))
	}
	m.Append("d", stored(1, 1, 400))
	if got := indexes(t, m, "a", 1, 0) + indexes(t, m, "b", 1, 0) + indexes(t, m, "c", 1, 0) + indexes(t, m, "d", 1, 0); got != "[4][2 4][4][1]" {
		t.Errorf("got %s, want %q", got, "[4][2 4][4][1]")
	}
}

// Sessions that send much, one or many, displace no events of a session that sends
// little, even if that session has been silent for longest.
//
// Guarantees: G-0033.4
func TestStoreIsShared(t *testing.T) {
	m := &MemoryStore{MaxBytes: 10_000, MaxSessionBytes: 9_500}
	m.Append("good", stored(1, 1, 200))
	for n := range uint64(1_000) {
		m.Append("hostile", stored(1, n+1, 500))
	}
	if got := indexes(t, m, "good", 1, 0); got != "[1]" {
		t.Errorf("the other session: got %s, want %q", got, "[1]")
	}
	for n := range 1_000 {
		for range 3 {
			m.Append(fmt.Sprint(n), stored(1, 1, 500))
		}
		if got := indexes(t, m, "good", 1, 0); got != "[1]" {
			t.Fatalf("after %d other sessions: got %s", n+1, got)
		}
	}
	if m.bytes > 10_000 || len(m.sessions) > 20 {
		t.Errorf("got %d bytes of %d sessions, want m.bytes <= 10_000 and len(m.sessions) <= 20", m.bytes, len(m.sessions))
	}
}

// Events are returned in pages within a limit of bytes. Each page has at least one
// event.
//
// Guarantees: G-0038.6
func TestStoreReturnsPages(t *testing.T) {
	m := new(MemoryStore)
	for n := range uint64(10) {
		m.Append("a", stored(1, 2*n+1, 200))
		m.Append("a", stored(2, n+1, 200))
	}
	for limit, want := range map[int]string{0: "[5]", 399: "[5]", 400: "[5 7]", 1 << 20: "[5 7 9 11 13 15 17 19]"} {
		for _, after := range []uint64{3, 4} {
			events, err := m.After(t.Context(), "a", 1, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, e := range events {
				got = append(got, e.Index)
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%d bytes after %d: %v, want %s", limit, after, got, want)
			}
		}
	}
}

// Events expire when they reach their age, without a request for them. An empty store
// has no timer.
//
// Guarantees: G-0033.4
func TestStoredEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(MemoryStore)
		m.Append("a", stored(1, 1, 200))
		m.Append("b", stored(1, 1, 200))
		pass(time.Minute)
		m.Append("a", stored(1, 2, 200))
		pass(time.Hour - 1)
		if got := indexes(t, m, "a", 1, 0); got != "[2]" {
			t.Errorf("before an hour has passed: got %s", got)
		}
		pass(1)
		if got := indexes(t, m, "a", 1, 0); got != "[]" {
			t.Errorf("after an hour: got %s", got)
		}
		pass(time.Hour / 8)
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bytes != 0 || len(m.sessions) != 0 || m.timer != nil {
			t.Errorf("%d bytes of %d sessions are left and the timer is %v, want none", m.bytes, len(m.sessions), m.timer)
		}
	})
}

// The events of a session expire at the age that the program sets, even after other
// sessions were forgotten.
//
// Guarantees: G-0033.4
func TestStoredEventsExpireWithoutRequests(t *testing.T) {
	for chosen, age := range map[time.Duration]time.Duration{0: time.Hour, -1: time.Hour, 8 * time.Minute: 8 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := &MemoryStore{MaxAge: chosen}
			m.Append("a", stored(1, 1, 200))
			m.Append("b", stored(1, 1, 200))
			m.Forget("b")
			held := func() int {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.bytes
			}
			pass(age - 1)
			if n := held(); n != 200 {
				t.Errorf("before %v have passed: got %d bytes", age, n)
			}
			pass(age/8 + 1)
			if n := held(); n != 0 || m.timer != nil {
				t.Errorf("after %v: got %d bytes and the timer %v, want none", age, n, m.timer)
			}
		})
	}
}
