//bowline:pure

package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

const (
	maxTold     = 24 << 10 // bytes, of all servers
	maxToldText = 200      // of one text
)

// Told returns what a gateway tells the others of the cluster: 24 KiB at most.
func (r Report) Told() json.RawMessage {
	told, size := NodeServers{Servers: []ServerReport{}}, 0
	for i, s := range r.TroubleFirst() {
		s.shorten()
		one, err := json.Marshal(s)
		if size += len(one) + len(","); err != nil || size > maxTold-len(`{"servers":[],"more":10000}`) {
			told.More = len(r.Servers) - i
			break
		}
		told.Servers = append(told.Servers, s)
	}
	text, _ := json.Marshal(told) // each was encoded
	return text
}

// shorten leaves of long texts their beginning: a server may have written them, and what a node tells is bounded for all its servers together.
func (s *ServerReport) shorten() {
	for _, text := range []*string{&s.Name, &s.Mistake, &s.Reason, &s.LastFailure, &s.Stderr} {
		*text = briefly(*text)
	}
	if len(s.Notices) > 0 {
		s.Notices = []string{briefly(s.Notices[0])}
	}
}

// briefly cuts a text where a character ends, so that it stays text.
func briefly(text string) string {
	if len(text) <= maxToldText {
		return text
	}
	return strings.ToValidUTF8(text[:maxToldText], "") + "…"
}

// NodesTroubleFirst returns the other gateways in the order in which a person wants to see them, and so are their servers.
func (r Report) NodesTroubleFirst() []NodeReport {
	nodes := slices.Clone(r.Nodes)
	slices.SortStableFunc(nodes, func(a, b NodeReport) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), strings.Compare(a.Name, b.Name))
	})
	return nodes
}

// urgency is that of the server that needs a person most. A gateway that does not answer comes before all: nobody knows how its servers are now,
// whatever they were before.
func (n NodeReport) urgency() int {
	worst := 5
	if n.Silent {
		worst = -1
	}
	for _, s := range n.Servers {
		worst = min(worst, s.urgency())
	}
	return worst
}
