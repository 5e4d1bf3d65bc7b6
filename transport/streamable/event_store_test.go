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
		t.Errorf("a session that has none: %s", got)
	}
	m.Forget("a")
	if got := indexes(t, m, "a", 2, 0) + indexes(t, m, "b", 1, 0); got != "[][1 2 3]" {
		t.Errorf("after Forget: %s", got)
	}
	m.Forget("a")
	m.Forget("b")
	if m.bytes != 0 || len(m.sessions) != 0 || m.largest.Len() != 0 {
		t.Errorf("%d bytes, %d sessions are left", m.bytes, len(m.sessions))
	}
}

// Guarantees: G-0033.4
func TestStoreIsBounded(t *testing.T) {
	m := &MemoryStore{MaxBytes: 10_000, MaxSessionBytes: 2_000}
	for n := range uint64(100) {
		m.Append("a", stored(1, n+1, 500))
	}
	if got := indexes(t, m, "a", 1, 0); got != "[97 98 99 100]" {
		t.Errorf("the bound of a session leaves %s", got)
	}
	m.Append("a", stored(1, 101, 3_000))
	if got := indexes(t, m, "a", 1, 0); got != "[97 98 99 100]" || m.bytes != 2_000 {
		t.Errorf("an event above the bound leaves %s, %d bytes", got, m.bytes)
	}
}

// What is exactly as large as a bound is held.
//
// Guarantees: G-0033.4
func TestStoreIsFilled(t *testing.T) {
	m := &MemoryStore{MaxBytes: 1_000, MaxSessionBytes: 500}
	m.Append("a", stored(1, 1, 500))
	m.Append("b", stored(1, 1, 250))
	m.Append("b", stored(1, 2, 250))
	if got := indexes(t, m, "a", 1, 0) + indexes(t, m, "b", 1, 0); got != "[1][1 2]" {
		t.Errorf("it holds %s", got)
	}
	for n := range transport.Stream(100) {
		m.Append("b", stored(n+2, 1, 250))
	}
	if n := len(m.sessions["b"].streams); n != 2 {
		t.Errorf("two events are noted under %d streams", n)
	}
	m.Forget("b")
	if len(m.largest) != 1 || m.largest[0].id != "a" || m.bytes != 500 {
		t.Errorf("after Forget %d sessions and %d bytes are left, but not those of a", len(m.largest), m.bytes)
	}
}

// Of sessions that hold as much, the one that has been quiet for longest loses first.
//
// Guarantees: G-0033.4
func TestStoreTakesFromTheQuiet(t *testing.T) {
	m := &MemoryStore{MaxBytes: 1_200}
	for _, session := range []string{"a", "b", "c", "a", "c", "b"} {
		m.Append(session, stored(1, uint64(len(m.sessions)+1), 200))
	}
	m.Append("d", stored(1, 1, 400))
	if got := indexes(t, m, "a", 1, 0) + indexes(t, m, "b", 1, 0) + indexes(t, m, "c", 1, 0) + indexes(t, m, "d", 1, 0); got != "[4][2 4][4][1]" {
		t.Errorf("it holds %s", got)
	}
}

// Sessions that send much, be it one or many, take nothing away from one that sends
// little and is quiet for longest.
//
// Guarantees: G-0033.4
func TestStoreIsShared(t *testing.T) {
	m := &MemoryStore{MaxBytes: 10_000, MaxSessionBytes: 9_500}
	m.Append("good", stored(1, 1, 200))
	for n := range uint64(1_000) {
		m.Append("hostile", stored(1, n+1, 500))
	}
	if got := indexes(t, m, "good", 1, 0); got != "[1]" {
		t.Errorf("the other session has %s left", got)
	}
	for n := range 1_000 {
		for range 3 {
			m.Append(fmt.Sprint(n), stored(1, 1, 500))
		}
		if got := indexes(t, m, "good", 1, 0); got != "[1]" {
			t.Fatalf("after %d other sessions it has %s left", n+1, got)
		}
	}
	if m.bytes > 10_000 || len(m.sessions) > 20 {
		t.Errorf("%d bytes of %d sessions are held", m.bytes, len(m.sessions))
	}
}

// Events come page by page, each at least one event.
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

// Events expire by their age, whether somebody asks for them or not, and an empty
// store has no timer.
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
			t.Errorf("before an hour is over: %s", got)
		}
		pass(1)
		if got := indexes(t, m, "a", 1, 0); got != "[]" {
			t.Errorf("after an hour: %s", got)
		}
		pass(time.Hour / 8)
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bytes != 0 || len(m.sessions) != 0 || m.timer != nil {
			t.Errorf("%d bytes of %d sessions are left, the timer is %v", m.bytes, len(m.sessions), m.timer)
		}
	})
}

// The events of a session expire by themselves after others were forgotten, and at the
// age that the program has chosen.
//
// Guarantees: G-0033.4
func TestStoredEventsExpireUnasked(t *testing.T) {
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
				t.Errorf("before %v are over it holds %d bytes", age, n)
			}
			pass(age/8 + 1)
			if n := held(); n != 0 || m.timer != nil {
				t.Errorf("after %v it holds %d bytes, and its timer is %v", age, n, m.timer)
			}
		})
	}
}
