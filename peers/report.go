package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Held is the cell of a feature that works as the specification has it.
const Held = "✓"

// A Cell is what was observed of one feature in one revision.
type Cell struct {
	Peer     int // the index in Peers
	Revision string
	Feature  Feature
	Observed string
}

const preface = `# Interoperation

The tests of [peers](../peers) generate this page, and fail if it is outdated. To rewrite it:

    cd peers && go test -tags npm -count=1 -run TestInterop . -update

The tests run real processes over standard input and output, and over Streamable HTTP. Each cell is the result of a check.
✓ means that it passed. – means that it cannot be run there; the text below the table says why. Any other text says what the
test observed, where implementations may differ.
`

// Page is docs/interop.md.
func Page(peers []Peer, features []Feature, cells []Cell) string {
	observed := observations{}
	for _, cell := range cells {
		key := cell
		key.Observed = ""
		observed[key] = cell.Observed
	}
	var page strings.Builder
	page.WriteString(preface)
	page.WriteString(observed.summary(peers))
	for i, peer := range peers {
		fmt.Fprintf(&page, "\n## %s %s as the %s over %s\n\n%s\n\n", peer.Name, peer.Version, peer.Role, peer.Transport, peer.Setting)
		page.WriteString(heading(append([]string{"Feature"}, peer.Transport.Revisions()...)))
		for _, feature := range features {
			page.WriteString(row(append([]string{string(feature)}, observed.of(peer, i, feature)...)))
		}
		page.WriteString(peer.reasons())
	}
	return page.String()
}

type observations map[Cell]string

// of returns one row of a peer's table.
func (o observations) of(p Peer, place int, feature Feature) (seen []string) {
	for _, revision := range p.Transport.Revisions() {
		seen = append(seen, cmp.Or(o[Cell{place, revision, feature, ""}], "not run"))
	}
	return seen
}

// summary returns a table for each transport, with the row for tools/call of
// each peer.
func (o observations) summary(peers []Peer) string {
	var table strings.Builder
	fmt.Fprintf(&table, "\n## %s, from all tables\n", Success)
	for _, over := range []Transport{Stdio, HTTP} {
		table.WriteString("\n" + heading(append([]string{"over " + string(over)}, over.Revisions()...)))
		for i, peer := range peers {
			if peer.Transport == over {
				name := fmt.Sprintf("%s %s as the %s", peer.Name, peer.Version, peer.Role)
				table.WriteString(row(append([]string{name}, o.of(peer, i, Success)...)))
			}
		}
	}
	return table.String()
}

func heading(columns []string) string {
	return row(columns) + "|" + strings.Repeat(" --- |", len(columns)) + "\n"
}

func row(columns []string) string { return "| " + strings.Join(columns, " | ") + " |\n" }

// reasons says why features cannot be checked.
func (p Peer) reasons() string {
	var list strings.Builder
	for _, lack := range p.Lacks {
		what := string(cmp.Or(lack.Feature, "all else"))
		if lack.Revisions != nil {
			elsewhere := func(revision string) bool { return !slices.Contains(p.Transport.Revisions(), revision) }
			what += " in " + strings.Join(slices.DeleteFunc(slices.Clone(lack.Revisions), elsewhere), ", ")
		}
		fmt.Fprintf(&list, "- *%s*: %s.\n", what, lack.Why)
	}
	if list.Len() == 0 {
		return ""
	}
	return "\nNot checked:\n\n" + list.String()
}
