package streamable

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"pgregory.net/rapid"
)

// A plainTable is a model of a sessionTable, which says by brute force what add must do.
type plainTable struct {
	limit int
	links []*plainLink // in the order in which they became idle
}

type plainLink struct {
	*serverLink
	client string
	places int
	used   int // how many requests use it
	worth  int
}

// of returns how many links and places a client has.
func (m *plainTable) of(client string) (links, places int) {
	for _, l := range m.links {
		if l.client == client {
			links++
			places += l.places
		}
	}
	return links, places
}

func (m *plainTable) free() int {
	free := m.limit
	for _, l := range m.links {
		free -= l.places
	}
	return free
}

func (m *plainTable) drop(l *plainLink) {
	m.links = slices.DeleteFunc(m.links, func(other *plainLink) bool { return other == l })
}

// last makes a link the one that became idle last.
func (m *plainTable) last(l *plainLink) {
	m.drop(l)
	m.links = append(m.links, l)
}

// add adds a link, and returns those that make room.
func (m *plainTable) add(l *plainLink) (evicted []*serverLink, ok bool) {
	_, had := m.of(l.client)
	free := m.free() - l.places
	within := had+l.places <= free*free/m.limit || had+l.places <= 1
	if m.limit < 64 {
		within = true
	}
	if within && free >= 0 {
		m.links = append(m.links, l)
		return nil, true
	}
	for {
		idle := m.dispensable(l)
		if idle == nil {
			return evicted, false
		}
		m.drop(idle)
		evicted = append(evicted, idle.serverLink)
		if m.free() >= l.places {
			m.links = append(m.links, l)
			return evicted, true
		}
	}
}

// dispensable returns the link that a new one replaces.
func (m *plainTable) dispensable(l *plainLink) *plainLink {
	_, mine := m.of(l.client)
	mine += l.places
	allSingle := true
	var idle []*plainLink
	for _, other := range m.links {
		if other.used == 0 {
			idle = append(idle, other)
		}
		links, _ := m.of(other.client)
		allSingle = allSingle && links == 1
	}
	slices.SortStableFunc(idle, func(a, b *plainLink) int { return cmp.Compare(a.worth, b.worth) })
	own := slices.IndexFunc(idle, func(other *plainLink) bool { return other.client == l.client })
	// Of each client only the first counts, and of these that of the client that holds most.
	slices.SortStableFunc(idle, func(a, b *plainLink) int {
		linksA, placesA := m.of(a.client)
		linksB, placesB := m.of(b.client)
		return cmp.Or(cmp.Compare(min(linksB, 2), min(linksA, 2)), cmp.Compare(placesB, placesA))
	})
	var most *plainLink
	if len(idle) > 0 {
		most = idle[0]
		links, places := m.of(most.client)
		if links > 1 && places > mine {
			return most
		}
		if own < 0 && allSingle && places >= mine {
			return most
		}
	}
	if own >= 0 {
		i := slices.IndexFunc(idle, func(other *plainLink) bool { return other.client == l.client })
		return idle[i]
	}
	return nil
}

// Whatever clients begin, use and end, a table does what the model says. What is taken is idle, is never the only link of a
// client while another one has several, and is not a link of a client that then would have less than the
// newcomer.
//
// Guarantees: G-0038.1, G-0083.9
func TestSessionsAreSharedLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := HandlerOptions{MaxSessions: rapid.SampledFrom([]int{3, 20, 64, 100}).Draw(t, "limit")}.withDefaults()
		table := newSessionTable(&o)
		defer table.close()
		table.perPlace = 100
		model := &plainTable{limit: o.MaxSessions}
		clients := rapid.SampledFrom([]int{2, 5, 40}).Draw(t, "clients")
		since := time.Now().Add(time.Hour) // later than all, because the clock may stand still between two calls
		idle := func(l *plainLink) {
			table.leave(l.serverLink)
			if l.used--; l.used == 0 {
				since = since.Add(1)
				l.use.since = since
				table.byUse.update(table.clients[l.key.Client])
				model.last(l)
			}
		}
		draw := func(t *rapid.T) *plainLink {
			if len(model.links) == 0 {
				t.Skip("no links")
			}
			return rapid.SampledFrom(model.links).Draw(t, "link")
		}
		number := 0
		begin := func(t *rapid.T, client string, size int, shared bool) {
			number++
			l := &plainLink{client: client, places: max(1, (size+99)/100)}
			l.serverLink = &serverLink{key: clientKey{Client: share.Client{Identity: client}}, size: int32(size), common: &common{table: table}}
			if l.session = fmt.Sprint(number); shared {
				l.session, l.worth, l.places, l.size = "", 1, 1, 0
				if table.shared[l.key] != nil {
					t.Skip("it has one")
				}
			}
			before := slices.Clone(model.links)
			want, wanted := model.add(l)
			evicted, ok := table.add(l.serverLink)
			if ok != wanted || !slices.Equal(evicted, want) {
				t.Fatalf("add returned %d links and %v, want %d and %v", len(evicted), ok, len(want), wanted)
			}
			wantFair(t, before, evicted, l)
			if ok {
				table.accepted(l.serverLink)
				l.used = 1
				if rapid.Bool().Draw(t, "then idle") {
					idle(l)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				begin(t, fmt.Sprint(rapid.IntRange(1, clients).Draw(t, "client")), rapid.SampledFrom([]int{0, 50, 100, 101, 250}).Draw(t, "size"), rapid.IntRange(0, 4).Draw(t, "shared") == 0)
			},
			"begin many": func(t *rapid.T) {
				client := fmt.Sprint(rapid.IntRange(1, clients).Draw(t, "client"))
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					begin(t, client, 0, false)
				}
			},
			"use": func(t *rapid.T) {
				l := draw(t)
				if l.isShared() {
					table.findShared(l.key)
				} else {
					table.find(l.session)
					table.confirm(l.serverLink)
					l.worth = 2
				}
				l.used++
			},
			"leave": func(t *rapid.T) {
				if l := draw(t); l.used > 0 {
					idle(l)
				}
			},
			"end": func(t *rapid.T) {
				l := draw(t)
				table.remove(l.serverLink, transport.ErrPeerClosed)
				model.drop(l)
			},
			"": func(t *rapid.T) {
				if got, want := table.places.Held(), model.limit-model.free(); got != want || len(table.sessions)+len(table.shared) != len(model.links) {
					t.Fatalf("%d places and %d links, want %d and %d", got, len(table.sessions)+len(table.shared), want, len(model.links))
				}
				for client, of := range table.clients {
					if links, places := model.of(client.Identity); of.links != links || of.places != places {
						t.Fatalf("%v has %d links and %d places, want %d and %d", client, of.links, of.places, links, places)
					}
				}
			},
		})
	})
}

// wantFair checks what was taken for a new link from those that were there before.
func wantFair(t *rapid.T, before []*plainLink, evicted []*serverLink, l *plainLink) {
	m := &plainTable{links: before}
	for _, gone := range evicted {
		i := slices.IndexFunc(m.links, func(other *plainLink) bool { return other.serverLink == gone })
		taken := m.links[i]
		links, places := m.of(taken.client)
		_, mine := m.of(l.client)
		if taken.used > 0 {
			t.Fatal("a link in use was taken")
		}
		if taken.client != l.client && places < mine+l.places {
			t.Fatalf("a link of a client with %d places was taken for one with %d", places, mine)
		}
		if taken.client != l.client && links == 1 && slices.ContainsFunc(m.links, func(other *plainLink) bool { n, _ := m.of(other.client); return n > 1 }) {
			t.Fatal("a client has lost its only link, while another has several")
		}
		m.links = slices.Delete(m.links, i, i+1)
	}
}
