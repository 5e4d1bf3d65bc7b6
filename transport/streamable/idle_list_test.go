package streamable

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Two lists hold the same links, each in the order in which they came to it, whichever
// leave and come again.
func TestIdleListsKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links := []*serverLink{new(serverLink), new(serverLink), new(serverLink), new(serverLink)}
		var lists [2]idleList
		var want [2][]*serverLink
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				which, l := rapid.IntRange(0, 1).Draw(t, "which"), rapid.SampledFrom(links).Draw(t, "link")
				if !slices.Contains(want[which], l) {
					lists[which].append(l, which)
					want[which] = append(want[which], l)
				}
			},
			"remove": func(t *rapid.T) {
				which := rapid.IntRange(0, 1).Draw(t, "which")
				if len(want[which]) == 0 {
					return
				}
				n := rapid.IntRange(0, len(want[which])-1).Draw(t, "n")
				lists[which].remove(want[which][n], which)
				want[which] = slices.Delete(want[which], n, n+1)
			},
			"": func(t *rapid.T) {
				for which := range lists {
					var there, back []*serverLink
					for l := lists[which].first; l != nil && len(there) <= len(links); l = l.use.places[which].after {
						there = append(there, l)
					}
					for l := lists[which].last; l != nil && len(back) <= len(links); l = l.use.places[which].before {
						back = append(back, l)
					}
					slices.Reverse(back)
					if !slices.Equal(there, want[which]) || !slices.Equal(back, want[which]) {
						t.Fatalf("list %d: %v, backwards %v, want %v", which, there, back, want[which])
					}
				}
			},
		})
	})
}

// A link becomes idle, and is used again, without memory of its own.
func TestIdlingAllocatesNothing(t *testing.T) {
	o := HandlerOptions{}.withDefaults()
	table := newSessionTable(&o)
	l := &serverLink{session: "s", common: &common{table: table}}
	table.add(l)
	defer table.close()
	if !table.accepted(l) {
		t.Fatal("the link is removed")
	}
	table.leave(l)
	if n := testing.AllocsPerRun(100, func() { table.leave(table.find("s")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
