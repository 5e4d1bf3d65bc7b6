package streamable

import (
	"cmp"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A sessionEnd says why a session has ended.
type sessionEnd uint8

const (
	sessionClosed  sessionEnd = iota // the client, the server or the program has closed it
	sessionEvicted                   // it was idle, and another session needed its place
	sessionExpired                   // it was idle for too long
	sessionEnds
)

var sessionEndNames = [sessionEnds]string{"closed", "evicted", "expired"}

// refusals count what a handler has refused, by status.
type refusals struct {
	mu     sync.Mutex
	counts map[int]uint64
}

// add counts a refusal. An aborted response has no status, and counts as 0.
func (r *refusals) add(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[int]uint64)
	}
	r.counts[status]++
}

// Stats counts the sessions that exist and that have ended, the bytes that are held,
// and the requests that were refused.
func (h *Handler) Stats() telemetry.HTTPSample {
	stats := telemetry.HTTPSample{Held: h.room.held()}
	h.table.mu.Lock()
	stats.Sessions, stats.Shared = len(h.table.sessions), len(h.table.shared)
	ended := h.table.ended
	h.table.mu.Unlock()
	for why, n := range ended {
		if n > 0 {
			stats.Ended = append(stats.Ended, telemetry.EndedSample{Why: sessionEndNames[why], Count: n})
		}
	}
	h.refusals.mu.Lock()
	defer h.refusals.mu.Unlock()
	for status, n := range h.refusals.counts {
		stats.Refused = append(stats.Refused, telemetry.Refused{Status: status, Count: n})
	}
	slices.SortFunc(stats.Refused, func(a, b telemetry.Refused) int { return cmp.Compare(a.Status, b.Status) })
	return stats
}
