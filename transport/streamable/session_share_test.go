package streamable

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"pgregory.net/rapid"
)

// A plainTable is a model of a sessionTable, which says by brute force which links make room.
type plainTable struct {
	places *share.Pool
	links  []*plainLink // in the order in which they became idle
}

type plainLink struct {
	*serverLink
	client string
	places int
	used   int // how many requests use it
	worth  int
}

// plainNetworks are the networks of clients that are no address of IPv4.
var plainNetworks = map[string]string{"2001:db8:0:1::/64": "2001:db8::/48", "2001:db8:0:2::/64": "2001:db8::/48", "2001:db8:0:3::/64": "2001:db8::/48", "2001:db8:1:1::/64": "2001:db8:1::/48"}

func networkOf(l *plainLink) string { return cmp.Or(plainNetworks[l.client], l.client) }
func clientOf(l *plainLink) string  { return l.client }

// A plainGroup is links that count together.
type plainGroup struct {
	links  []*plainLink
	places int
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
	for ok = m.places.Take(l.key.Client, l.places); !ok; ok = m.places.Extend(l.key.Client, l.places) {
		idle := spare(m.links, l, networkOf, clientOf)
		if idle == nil {
			return evicted, false
		}
		m.drop(idle)
		m.places.Give(idle.key.Client, idle.places)
		evicted = append(evicted, idle.serverLink)
	}
	m.links = append(m.links, l)
	return evicted, true
}

func groupsOf(links []*plainLink, by func(*plainLink) string) map[string]*plainGroup {
	groups := make(map[string]*plainGroup)
	for _, l := range links {
		g := groups[by(l)]
		if g == nil {
			g = new(plainGroup)
			groups[by(l)] = g
		}
		g.links = append(g.links, l)
		g.places += l.places
	}
	return groups
}

// takeFrom returns the link that the group gives up which has most, and this group; nil if no link is idle.
func takeFrom(links []*plainLink, by ...func(*plainLink) string) (from *plainGroup, idle *plainLink) {
	if len(by) == 0 {
		for _, l := range links {
			if l.used == 0 && (idle == nil || l.worth < idle.worth) {
				idle = l
			}
		}
		return nil, idle
	}
	for _, g := range groupsOf(links, by[0]) {
		_, l := takeFrom(g.links, by[1:]...)
		if l == nil {
			continue
		}
		if from == nil || cmp.Or(
			cmp.Compare(min(len(g.links), 2), min(len(from.links), 2)), cmp.Compare(g.places, from.places), cmp.Compare(idle.worth, l.worth),
			cmp.Compare(slices.Index(links, idle), slices.Index(links, l)),
		) > 0 {
			from, idle = g, l
		}
	}
	return from, idle
}

// spare returns the link that a new one replaces.
func spare(links []*plainLink, l *plainLink, by ...func(*plainLink) string) *plainLink {
	if len(by) == 0 {
		_, idle := takeFrom(links)
		return idle
	}
	most, idle := takeFrom(links, by...)
	if idle == nil {
		return nil
	}
	groups := groupsOf(links, by[0])
	mine, single := l.places, true
	var own []*plainLink
	if g := groups[by[0](l)]; g != nil {
		mine, own = mine+g.places, g.links
	}
	for _, g := range groups {
		single = single && len(g.links) == 1
	}
	if len(most.links) > 1 && most.places > mine {
		return idle
	}
	if slices.ContainsFunc(own, func(l *plainLink) bool { return l.used == 0 }) {
		return spare(own, l, by[1:]...)
	}
	if single && most.places >= mine {
		return idle
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
		model := &plainTable{places: share.NewPlaces(o.MaxSessions)}
		clients := slices.Collect(maps.Keys(plainNetworks))
		slices.Sort(clients)
		for n := range rapid.SampledFrom([]int{1, 2, 5, 40}).Draw(t, "clients") {
			clients = append(clients, fmt.Sprint("192.0.2.", n))
		}
		clients = clients[rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "no networks"):]
		since := time.Now().Add(time.Hour) // later than all, because the clock may stand still between two calls
		idle := func(l *plainLink) {
			table.leave(l.serverLink)
			if l.used--; l.used == 0 {
				since = since.Add(1)
				l.use.since = since
				table.clients[l.key.Client].add(0, 0)
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
			l.serverLink = &serverLink{key: clientKey{Client: share.Client{Network: client}}, size: int32(size), common: &common{listed: table}}
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
				begin(t, rapid.SampledFrom(clients).Draw(t, "client"), rapid.SampledFrom([]int{0, 50, 100, 101, 250}).Draw(t, "size"), rapid.IntRange(0, 4).Draw(t, "shared") == 0)
			},
			"begin many": func(t *rapid.T) {
				client := rapid.SampledFrom(clients).Draw(t, "client")
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
				model.places.Give(l.key.Client, l.places)
			},
			"": func(t *rapid.T) {
				if got, want := table.places.Held(), model.places.Held(); got != want || len(table.sessions)+len(table.shared) != len(model.links) {
					t.Fatalf("%d places and %d links, want %d and %d", got, len(table.sessions)+len(table.shared), want, len(model.links))
				}
				networks, clients := groupsOf(model.links, networkOf), groupsOf(model.links, clientOf)
				maps.DeleteFunc(networks, func(network string, _ *plainGroup) bool { return !strings.HasSuffix(network, "/48") })
				if len(table.clients) != len(clients) || len(table.networks) != len(networks) {
					t.Fatalf("%d clients of %d networks, want %d and %d", len(table.clients), len(table.networks), len(clients), len(networks))
				}
				for client, of := range table.clients {
					if want := clients[client.Network]; of.links != len(want.links) || of.places != want.places {
						t.Fatalf("%v has %d links and %d places, want %v", client, of.links, of.places, want)
					}
				}
				for network, of := range table.networks {
					if want := networks[network.String()]; of.links != len(want.links) || of.places != want.places {
						t.Fatalf("%v has %d links and %d places, want %v", network, of.links, of.places, want)
					}
				}
			},
		})
	})
}

// wantFair checks what was taken for a new link from those that were there before.
func wantFair(t *rapid.T, before []*plainLink, evicted []*serverLink, l *plainLink) {
	for _, gone := range evicted {
		i := slices.IndexFunc(before, func(other *plainLink) bool { return other.serverLink == gone })
		taken, among, by := before[i], before, networkOf
		if taken.used > 0 {
			t.Fatal("a link in use was taken")
		}
		if networkOf(taken) == networkOf(l) {
			among, by = groupsOf(before, networkOf)[networkOf(l)].links, clientOf
		}
		groups, mine := groupsOf(among, by), l.places
		if own := groups[by(l)]; own != nil {
			mine += own.places
		}
		if from := groups[by(taken)]; by(taken) != by(l) {
			if from.places < mine {
				t.Fatalf("a link of %d places was taken for one of %d", from.places, mine)
			}
			for _, other := range groups {
				if len(from.links) == 1 && len(other.links) > 1 {
					t.Fatal("a client has lost its only link, while another has several")
				}
			}
		}
		before = slices.Delete(before, i, i+1)
	}
}

// A client that has many networks of one /48 takes no more idle sessions than one client: newcomers of its networks
// replace each other's.
//
// Guarantees: G-0083.9
func TestNetworksOfOneClientEndNoOnlySession(t *testing.T) {
	o := HandlerOptions{MaxSessions: 100}.withDefaults()
	table := newSessionTable(&o)
	defer table.close()
	begin := func(network string, session int) (l *serverLink, evicted []*serverLink) {
		l = &serverLink{session: fmt.Sprint(network, session), key: clientKey{Client: share.Client{Network: network}}}
		evicted, ok := table.add(l)
		if !ok || !table.accepted(l) {
			t.Fatalf("the session of %s was refused", network)
		}
		table.leave(l)
		return l, evicted
	}
	for n := range 60 {
		begin(fmt.Sprint("192.0.2.", n), 1)
	}
	for n := range 1000 {
		_, evicted := begin(fmt.Sprintf("2001:db8:0:%x::/64", n), 1)
		for _, l := range evicted {
			if l.key.Wide() != netip.MustParsePrefix("2001:db8::/48") {
				t.Fatalf("the session of %s has ended for newcomer %d", l.key.Network, n)
			}
		}
	}
}
