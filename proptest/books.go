package proptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// endings are counts of calls.
type endings map[conn.Cause]map[conn.Delivery]uint64

func newEndings() endings {
	e := endings{}
	for _, cause := range conn.Causes() {
		e[cause] = map[conn.Delivery]uint64{}
	}
	return e
}

// books are the sums of all rounds of a soak.
type books struct {
	made       int
	took       time.Duration
	endings    endings
	executed   int // by the peers
	twice      int // of those, more than once
	reconnects int
	stats      conn.Stats // the counts of frames
	faults     map[fault.Kind]int
}

func newBooks() *books { return &books{endings: newEndings(), faults: map[fault.Kind]int{}} }

func (b *books) add(s *soaked) {
	b.made += len(s.ledger.entries)
	for cause, by := range s.ledger.endings() {
		for delivery, n := range by {
			b.endings[cause][delivery] += n
		}
	}
	for _, a := range s.ledger.entries {
		b.executed += min(a.executed, 1)
		b.twice += max(a.executed-1, 0)
	}
	b.reconnects += max(s.ledger.links-1, 0)
	b.stats.Late += s.atRest.Late
	b.stats.Unknown += s.atRest.Unknown
	b.stats.Malformed += s.atRest.Malformed
	b.stats.Shed += s.atRest.Shed
	for _, e := range s.faults.Log() {
		b.faults[e.Kind]++
	}
}

func (b *books) answered() uint64 { return b.endings[conn.Answered][conn.Sent] }

// String is a table of calls by cause and delivery, and the counts.
func (b *books) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "ended\t")
	for _, delivery := range conn.Deliveries() {
		fmt.Fprintf(table, "%s\t", delivery)
	}
	fmt.Fprintln(table)
	for _, cause := range conn.Causes() {
		fmt.Fprintf(table, "%s\t", cause)
		for _, delivery := range conn.Deliveries() {
			fmt.Fprintf(table, "%d\t", b.endings[cause][delivery])
		}
		fmt.Fprintln(table)
	}
	table.Flush()
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
