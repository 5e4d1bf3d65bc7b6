package proptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// books are the sums of all rounds of a soak.
type books struct {
	made       int
	took       time.Duration
	told       ledger.Counts
	executed   int // by the peers
	twice      int // of those, more than once
	reconnects int
	stats      conn.Stats // the counts of frames
	faults     map[fault.Kind]int
}

func newBooks() *books { return &books{told: ledger.Counts{}, faults: map[fault.Kind]int{}} }

func (b *books) add(s *soaked) {
	b.made += len(s.record.entries)
	b.told.Add(s.record.Told())
	for _, a := range s.record.entries {
		b.executed += min(a.Executed, 1)
		b.twice += max(a.Executed-1, 0)
	}
	b.reconnects += max(s.record.links-1, 0)
	b.stats.Late += s.atRest.Late
	b.stats.Unknown += s.atRest.Unknown
	b.stats.Malformed += s.atRest.Malformed
	b.stats.Shed += s.atRest.Shed
	for _, e := range s.faults.Log() {
		b.faults[e.Kind]++
	}
}

func (b *books) answered() uint64 { return b.told[ledger.Answered()] }

// String is a table of calls by cause and delivery, and the counts.
func (b *books) String() string {
	var text strings.Builder
	text.WriteString(b.told.String())
	fmt.Fprintf(&text, "%d calls, of which the peers have executed %d, and %d again\n", b.made, b.executed, b.twice)
	fmt.Fprintf(&text, "answers: %d late, %d unknown; frames: %d malformed, %d shed; reconnects: %d\n",
		b.stats.Late, b.stats.Unknown, b.stats.Malformed, b.stats.Shed, b.reconnects)
	fmt.Fprint(&text, "faults:")
	for _, kind := range slices.Sorted(maps.Keys(b.faults)) {
		fmt.Fprintf(&text, " %d %s,", b.faults[kind], kind)
	}
	fmt.Fprintf(&text, "\nin %v, %.0f calls a second\n", b.took.Round(time.Millisecond), float64(b.made)/b.took.Seconds())
	return text.String()
}
