package streamable

import (
	"cmp"
	"slices"

	"github.com/bowline-mcp/bowline/telemetry"
)

// They are labels of a metric, in the order of the constants.
var sessionEndNames = [sessionEnds]string{"closed", "evicted", "expired"}

// Stats counts the sessions that exist and that have ended, the bytes that are held,
// and the requests that were refused.
// The parts are read one after the other, so they need not be of the same moment.
func (h *Handler) Stats() telemetry.HTTPSample {
	stats := telemetry.HTTPSample{Held: h.bodies.held()}
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
	stats.Refused, stats.Denied = byStatus(h.refusals.counts), byStatus(h.refusals.denied)
	return stats
}

func byStatus(counts map[int]uint64) (all []telemetry.Refused) {
	for status, n := range counts {
		all = append(all, telemetry.Refused{Status: status, Count: n})
	}
	slices.SortFunc(all, func(a, b telemetry.Refused) int { return cmp.Compare(a.Status, b.Status) })
	return all
}
