package client_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// A fruitless balancer answers each GET, and each call, with the same events, and ends the
// stream.
type fruitless struct {
	balancer
	events string
	last   time.Duration // how long a stream stays open
	gets   atomic.Int64
}

func (b *fruitless) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == http.MethodGet:
		b.gets.Add(1)
		open := time.NewTimer(b.last)
		defer open.Stop()
		select {
		case <-open.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return httpResponse(http.StatusOK, "text/event-stream", b.events), nil
	case isCall(r):
		return httpResponse(http.StatusOK, "text/event-stream", b.events), nil
	default:
		return b.balancer.RoundTrip(r)
	}
}

// isCall reports whether a request calls a tool.
func isCall(r *http.Request) bool {
	if r.GetBody == nil {
		return false
	}
	body, _ := r.GetBody() // of memory
	text, _ := io.ReadAll(body)
	return strings.Contains(string(text), protocol.MethodCallTool)
}

func newFruitless(events string) *fruitless {
	b := &fruitless{balancer: balancer{nodes: []string{"a"}}, events: events}
	b.tripper = b
	return b
}

// If a GET stream ends at once each time, it is reopened ever more rarely, whatever retry says,
// until a message has come or the stream has lasted.
//
// Guarantees: G-0022.4
func TestStreamThatEndsAtOnceIsReopenedEverMoreRarely(t *testing.T) {
	const message = `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	for name, c := range map[string]struct {
		events     string
		last       time.Duration
		from, upTo int64 // how many GET requests in ten minutes
	}{
		"retry 0":               {"retry: 0\n\n", 0, 20, 40},
		"an id and retry 0":     {"id: 1\nretry: 0\ndata:\n\n", 0, 20, 40},
		"a retry of a minute":   {"retry: 60000\n\n", 0, 9, 11},
		"a message each time":   {"retry: 1000\n" + message + "\n\n", 0, 590, 601},
		"half a minute or more": {"retry: 1000\n\n", 30 * time.Second, 18, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFruitless(c.events)
				b.last = c.last
				b.connect(t)
				pass(10 * time.Minute)
				if got := b.gets.Load(); got < c.from || got > c.upTo {
					t.Errorf("got %d GET requests in 10 minutes, want %d to %d", got, c.from, c.upTo)
				}
			})
		})
	}
}

// If the resumption of a call's stream never gets further, it is repeated ever more rarely.
//
// Guarantees: G-0022.4
func TestResumptionThatNeverGetsFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFruitless("id: 7\nretry: 0\ndata:\n\n")
		session := b.connect(t)
		pass(5 * time.Minute) // until the GET stream of the session is opened every 30 s
		before := b.gets.Load()
		o := session.Calls()
		o.Timeout = 5 * time.Minute
		if _, err := session.With(o).CallTool(t.Context(), &protocol.CallToolParams{Name: "echo"}); err == nil {
			t.Fatal("the call was answered, want its timeout")
		}
		if got := b.gets.Load() - before; got < 15 || got > 35 {
			t.Errorf("got %d GET requests in 5 minutes, want 15 to 35", got)
		}
	})
}
