package streamable

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A measured handler answers requests without a network. Its server is an echo on a goroutine of
// its own.
type measured struct {
	*Handler
	session string // one that is here
}

func newMeasured(b *testing.B, sessions SessionStore) *measured {
	h := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{MaxSessions: 3000, Sessions: sessions})
	b.Cleanup(func() {
		if err := h.Close(0); err != nil {
			b.Error(err)
		}
	})
	m := &measured{Handler: h}
	m.session = m.initialize(b)
	return m
}

func (m *measured) initialize(b *testing.B) (session string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, newRequest("POST", initializeBody("2025-06-18")))
	if session = w.Header().Get(headerSession); session == "" {
		b.Fatalf("got %d %s, want a session", w.Code, w.Body)
	}
	return session
}

func (m *measured) ask(b *testing.B, session string, want int) {
	w := httptest.NewRecorder()
	if m.ServeHTTP(w, newRequest("POST", echoBody, headerSession+": "+session)); w.Code != want {
		b.Fatalf("got %d %s, want %d", w.Code, w.Body, want)
	}
}

// BenchmarkStoredSessions compares what requests cost with and without HandlerOptions.Sessions: a
// call, an initialize, and a request of an unknown session. They take turns, so that both see the
// same machine. The ratio is that of the medians.
func BenchmarkStoredSessions(b *testing.B) {
	for name, request := range map[string]func(*testing.B, *measured){
		"call":       func(b *testing.B, m *measured) { m.ask(b, m.session, 200) },
		"initialize": func(b *testing.B, m *measured) { m.initialize(b) },
		"unknown":    func(b *testing.B, m *measured) { m.ask(b, "unknown", 404) },
	} {
		b.Run(name, func(b *testing.B) {
			both := []*measured{newMeasured(b, nil), newMeasured(b, &discarding{make(map[string]SessionRecord)})}
			took := make([][]time.Duration, 2)
			for n := 0; b.Loop(); n++ {
				for side := range both {
					side := (n + side) % 2
					begun := time.Now()
					request(b, both[side])
					took[side] = append(took[side], time.Since(begun))
				}
			}
			for side := range took {
				slices.Sort(took[side])
			}
			middle := len(took[0]) / 2
			b.ReportMetric(float64(took[1][middle])/float64(took[0][middle]), "stored/not")
		})
	}
}

// BenchmarkRestoredSession measures the first request of a session that is not here.
func BenchmarkRestoredSession(b *testing.B) {
	store := &discarding{make(map[string]SessionRecord)}
	m := newMeasured(b, store)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		session := fmt.Sprint("s-", n)
		store.sessions[session] = SessionRecord{Initialize: []byte(initializeBody("2025-06-18")), Version: "2025-06-18"}
		m.ask(b, session, 200)
		delete(store.sessions, session)
	}
}
