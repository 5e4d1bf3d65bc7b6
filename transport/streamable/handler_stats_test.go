package streamable

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Stats counts the sessions of a handler, how sessions have ended, and the refusals by
// status.
//
// Guarantees: G-0024.10
func TestStatsOfAHandler(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 1})
	s.initialize("2025-06-18")
	second := s.initialize("2025-06-18") // removes the first session
	s.post(`{`, second)
	want := telemetry.HTTPSample{
		Sessions: 1,
		Ended:    []telemetry.EndedSample{{Why: "evicted", Count: 1}},
		Refused:  []telemetry.Refused{{Status: 400, Count: 1}},
	}
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.do("DELETE", "", header{second})
	want.Sessions, want.Ended = 0, append([]telemetry.EndedSample{{Why: "closed", Count: 1}}, want.Ended...)
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("after DELETE (-want +got):\n%s", diff)
	}
}

// A link of messages without a session is no session: it is counted while it is there, and does not count as one that has ended.
//
// Guarantees: G-0024.10
func TestStatsOfSharedLinks(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 1})
	s.post(modernBody("echo", ""), modernHeader("echo")...)
	want := telemetry.HTTPSample{Shared: 1}
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.initialize("2025-06-18") // takes its place
	want = telemetry.HTTPSample{Sessions: 1}
	if diff := cmp.Diff(want, s.handler.Stats()); diff != "" {
		t.Errorf("with a session in its place (-want +got):\n%s", diff)
	}
}

// Stats tells those apart whose senders may not do that: they have no login, may not call what they name, or their page is of another site.
//
// Guarantees: G-0024.10
func TestStatsCountDenials(t *testing.T) {
	s := newSite(t, HandlerOptions{Check: func(r *http.Request) (Caller, *Denial) {
		if r.Header.Get("X-User") == "" {
			return nil, &Denial{Status: http.StatusUnauthorized, Text: "log in"}
		}
		return restricted{}, nil
	}})
	const user = "X-User: ada"
	s.post(`{`)
	s.post(`{`)
	s.post(`{`, user)
	s.post(initializeBody("2025-06-18"), user)
	s.post(`{`, "Origin: https://evil.example")
	want := []telemetry.Refused{{Status: 401, Count: 2}, {Status: 403, Count: 2}}
	if diff := cmp.Diff(want, s.handler.Stats().Denied); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The refusals in Stats are sorted by status.
func TestStatsAreSortedByStatus(t *testing.T) {
	h := NewHandler(accepting(func(transport.Link) {}), HandlerOptions{})
	defer h.Close(0)
	for _, status := range []int{503, 400, 429, 404, 0, 403, 401, 413, 415, 405} {
		h.refusals.add(status, false)
	}
	h.bodies.small.Take(share.Client{}, 3)
	if held := h.Stats().Held; held != 3 {
		t.Errorf("%d bytes are held, want 3", held)
	}
	statuses := []int{}
	for _, refused := range h.Stats().Refused {
		statuses = append(statuses, refused.Status)
	}
	if len(statuses) != 10 || !slices.IsSorted(statuses) {
		t.Errorf("got %d, want 10 in order", statuses)
	}
}

// held counts the bytes of small and large bodies.
func TestStatsCountTheBytesOfAllBodies(t *testing.T) {
	m := newBodyBudget(1000, 1000, nil)
	m.small.Take(share.Client{}, 3)
	m.large.Take(share.Client{}, 40)
	if got := m.held(); got != 43 {
		t.Errorf("got %d, want 43", got)
	}
}
