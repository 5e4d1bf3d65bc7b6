package streamable

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"pgregory.net/rapid"
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
	if m.all.bytes != 0 || len(m.sessions) != 0 || len(m.all.parts) != 0 || len(m.clients) != 0 {
		t.Errorf("%d bytes and %d sessions are left, want none", m.all.bytes, len(m.sessions))
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
	if got := indexes(t, m, "a", 1, 0); got != "[97 98 99 100]" || m.all.bytes != 2_000 {
		t.Errorf("after an event above the limit: got %s, %d bytes", got, m.all.bytes)
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
	if s := m.all.most(); len(m.sessions) != 1 || s.name != "a" || m.all.bytes != 500 {
		t.Errorf("after Forget: got %d sessions and %d bytes, want those of session a only", len(m.sessions), m.all.bytes)
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
	if m.all.bytes > 10_000 || len(m.sessions) > 20 {
		t.Errorf("got %d bytes of %d sessions, want m.all.bytes <= 10_000 and len(m.sessions) <= 20", m.all.bytes, len(m.sessions))
	}
}

// Whatever clients store and forget, a full store drops the oldest event of the largest session of the client that
// holds most, where a /48 counts as one client.
//
// Guarantees: G-0033.4, G-0083.10
func TestStoreIsSharedLikeTheModel(t *testing.T) {
	networks := map[string]string{"2001:db8:0:1::/64": "2001:db8::/48", "2001:db8:0:2::/64": "2001:db8::/48"}
	type event struct {
		session, client string
		bytes           int
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &MemoryStore{MaxBytes: 4_000, MaxSessionBytes: 2_000}
		defer func() {
			for session := range m.sessions {
				m.Forget(session)
			}
		}()
		var model []event                           // oldest first
		appended, latest := 0, make(map[string]int) // the number of the newest event, by name, whether it is still there or not
		// largest returns the name of what holds most; of several, of what has had no new event for longest.
		largest := func(of []event, name func(event) string) string {
			bytes := make(map[string]int)
			for _, e := range of {
				bytes[name(e)] += e.bytes
			}
			return slices.MaxFunc(slices.Collect(maps.Keys(bytes)), func(a, b string) int {
				return cmp.Or(cmp.Compare(bytes[a], bytes[b]), cmp.Compare(latest[b], latest[a]))
			})
		}
		only := func(of []event, name func(event) string, want string) (kept []event) {
			for _, e := range of {
				if name(e) == want {
					kept = append(kept, e)
				}
			}
			return kept
		}
		bytes := func(of []event) (n int) {
			for _, e := range of {
				n += e.bytes
			}
			return n
		}
		levels := []func(event) string{
			func(e event) string { return cmp.Or(networks[e.client], e.client) },
			func(e event) string { return e.client },
			func(e event) string { return e.session },
		}
		drop := func(session string) {
			i := slices.IndexFunc(model, func(e event) bool { return e.session == session })
			model = slices.Delete(model, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				client := rapid.SampledFrom([]string{"ada", "bob", "192.0.2.1", "2001:db8:0:1::/64", "2001:db8:0:2::/64"}).Draw(t, "client")
				e := event{fmt.Sprint(client, rapid.IntRange(1, 3).Draw(t, "session")), client, 100 * rapid.IntRange(2, 12).Draw(t, "size")}
				stored := stored(1, 1, e.bytes)
				stored.Client = client
				m.Append(e.session, stored)
				model = append(model, e)
				appended++
				for _, level := range levels {
					latest[level(e)] = appended
				}
				for bytes(only(model, levels[2], e.session)) > 2_000 {
					drop(e.session)
				}
				for bytes(model) > 4_000 {
					of := model
					for _, level := range levels {
						of = only(of, level, largest(of, level))
					}
					drop(of[0].session)
				}
			},
			"forget": func(t *rapid.T) {
				if len(model) > 0 {
					session := rapid.SampledFrom(model).Draw(t, "event").session
					m.Forget(session)
					model = slices.DeleteFunc(model, func(e event) bool { return e.session == session })
				}
			},
			"": func(t *rapid.T) {
				sessions, clients := make(map[string]int), make(map[string]bool)
				for _, e := range model {
					sessions[e.session] += e.bytes
					clients[e.client], clients[networks[e.client]] = true, true
				}
				if delete(clients, ""); m.all.bytes != bytes(model) || len(m.sessions) != len(sessions) || len(m.clients) != len(clients) {
					t.Fatalf("%d bytes, %d sessions and %d holders, want %d, %d and %d", m.all.bytes, len(m.sessions), len(m.clients), bytes(model), len(sessions), len(clients))
				}
				for session, want := range sessions {
					if s := m.sessions[session]; s == nil || s.bytes != want {
						t.Fatalf("%s: got %v, want %d bytes", session, s, want)
					}
				}
			},
		})
	})
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

// What a store has returned does not change when it drops the events.
func TestReturnedEventsAreTheCallers(t *testing.T) {
	m := &MemoryStore{MaxBytes: 1000}
	m.Append("a", StoredEvent{Stream: 1, Index: 1, Data: []byte("1")})
	events, err := m.After(t.Context(), "a", 1, 0, 1<<20)
	if err != nil || len(events) != 1 {
		t.Fatalf("got %+v, %v; want one event", events, err)
	}
	for n := range uint64(20) {
		m.Append("a", stored(2, n+1, 200))
	}
	if string(events[0].Data) != "1" {
		t.Errorf("the event became %+v", events[0])
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
		if m.all.bytes != 0 || len(m.sessions) != 0 || m.timer != nil {
			t.Errorf("%d bytes of %d sessions are left and the timer is %v, want none", m.all.bytes, len(m.sessions), m.timer)
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
				return m.all.bytes
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
