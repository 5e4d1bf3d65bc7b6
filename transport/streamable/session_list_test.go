package streamable

import (
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"pgregory.net/rapid"
)

// Two lists contain the same links, each in the order in which the links came to it,
// whichever links leave and return.
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
						t.Fatalf("list %d: got %v, backwards %v, want %v", which, there, back, want[which])
					}
				}
			},
		})
	})
}

// A link becomes idle and active again without an allocation.
func TestIdlingAllocatesNothing(t *testing.T) {
	o := HandlerOptions{}.withDefaults()
	table := newSessionTable(&o)
	l := &serverLink{session: "s", common: &common{listed: table}}
	table.add(l)
	defer table.close()
	if !table.accepted(l) {
		t.Fatal("the link was removed, want it kept")
	}
	table.leave(l)
	if n := testing.AllocsPerRun(100, func() { l := table.find("s"); table.leave(l) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// A link without a session that another one replaces before its end is complete takes no
// place any more, however often that happens.
//
// Guarantees: G-0022.12
func TestReplacedLinkTakesNoPlace(t *testing.T) {
	o := HandlerOptions{MaxSessions: 3}.withDefaults()
	table := newSessionTable(&o)
	key := clientKey{Client: share.Client{Identity: "ada"}}
	var links []*serverLink
	for n := range 10 {
		table.findShared(key)
		l := &serverLink{key: key}
		if _, ok := table.add(l); !ok || !table.accepted(l) {
			t.Fatalf("link %d was refused, although the others have ended", n)
		}
		table.opened(key)
		l.isEnding.Store(true) // a request still uses the link, so its end takes a while
		links = append(links, l)
	}
	if n := table.places.Held(); n != 1 || len(table.shared) != 1 {
		t.Errorf("got %d places and %d shared links, want 1 of each", n, len(table.shared))
	}
	for _, l := range links {
		table.leave(l)
		<-table.remove(l, transport.ErrPeerClosed)
	}
	if n := table.places.Held(); n != 0 || len(table.shared) != 0 {
		t.Errorf("after the end of all links: got %d places and %d shared links, want none", n, len(table.shared))
	}
	table.close()
}
