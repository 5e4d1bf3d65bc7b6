//bowline:pure

package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
)

// A Server is an entry of the file.
type Server struct {
	Name     string
	Identity string          // what it runs, see IdentityOf; if it differs from before, what the server said does not count
	Filter   map[Kind]Filter // what is offered, by own name or URI; no filter: everything

	Rename   map[string]string // what single tools are called, before a prefix is added, by own name
	Describe map[string]string // descriptions of single tools, in place of those of the server, by own name

	Pins   string // what becomes of a tool that has changed: Warn, which "" means, too, Block or Off
	Shared bool   // pins are those of a cluster: a tool without one is not pinned here, and counts as changed until the cluster has one
}

// A List is what a server has answered to a request for a list, all pages together.
type List struct {
	Entries []json.RawMessage
	At      time.Time
	TTL     time.Duration // for how long the list may be cached
	Private bool          // only for the one who has asked
}

// A Snapshot is what is known at one time. It is immutable.
type Snapshot struct {
	plan    *names.Plan
	servers []server // in file order
	gone    []server // which the file does not have now, the last one first: their pins alone
	merged  map[Kind]*merged
	part    *part // nil: it is the whole
}

// A server is never changed, but replaced.
type server struct {
	Server
	lists map[Kind]known
	fails map[Kind]error // why it has not said what it has, when it was asked last
	pins  map[string]pin // by pinName
}

// A known list is the last one of a server.
type known struct {
	entries []entry
	notices []string
	inputs  []string // those of notices that are about input schemas
	at      time.Time
	ttl     time.Duration
	private bool
}

// An Item is a thing that is offered to clients.
type Item struct {
	Server string
	Own    string          // what the server calls it; the URI of a resource, the text of a template
	Name   string          // what clients call it; of resources and templates, Own
	Raw    json.RawMessage // the entry, with Name in place of Own. It must not be changed

	Says
	sum [sha256.Size]byte // of Name and Raw
}

// Says is what a tool says of itself, read once and not for each call.
type Says struct {
	ReadOnly   bool
	Stateful   bool // each client has its own state there
	CanBeTask  bool // in 2025-11-25
	MustBeTask bool
}

// Empty returns the Snapshot of a gateway without servers.
func Empty() *Snapshot {
	plan, _ := names.Make(0, nil)
	return build(plan, nil)
}

func build(plan *names.Plan, servers []server) *Snapshot {
	s := &Snapshot{plan: plan, servers: servers, merged: map[Kind]*merged{}}
	for _, kind := range Kinds() {
		s.merged[kind] = merge(plan, servers, kind)
	}
	return s
}

// maxGone is of how many servers that are not in the file pins are remembered.
const maxGone = 256

// Apply returns the Snapshot with these servers, in file order. Those that were there keep what they have said, unless
// their identity has changed. One that comes back keeps its pins: to disable it, or a mistake in its entry, approves nothing.
func (s *Snapshot) Apply(plan *names.Plan, servers []Server) *Snapshot {
	next := make([]server, len(servers))
	for i, one := range servers {
		next[i] = server{Server: one}
		if before, ok := s.server(one.Name); ok && before.Identity == one.Identity {
			next[i].lists, next[i].pins, next[i].fails = named(before.lists, plan, one), before.pins, before.fails
		} else if at := slices.IndexFunc(s.gone, func(g server) bool { return g.Name == one.Name && g.Identity == one.Identity }); at >= 0 {
			next[i].pins = s.gone[at].pins
		}
	}
	all := build(plan, next)
	all.gone = s.without(next)
	return all
}

// without returns the servers that had pins, and are not among the next ones.
func (s *Snapshot) without(next []server) (gone []server) {
	for _, one := range slices.Concat(s.servers, s.gone) {
		isThere := slices.ContainsFunc(next, func(n server) bool { return n.Name == one.Name })
		if !isThere && len(one.pins) > 0 && len(gone) < maxGone {
			gone = append(gone, server{Server: Server{Name: one.Name, Identity: one.Identity}, pins: one.pins})
		}
	}
	return gone
}

// Learn returns the Snapshot with a new list of a server. A list of a server that is not there, or that has another
// identity meanwhile, changes nothing.
func (s *Snapshot) Learn(from Server, kind Kind, list List) *Snapshot {
	i := s.indexOf(from)
	if i < 0 || !slices.Contains(Kinds(), kind) {
		return s
	}
	return s.replaced(i, s.servers[i].with(s.plan, kind, list), kind)
}

// indexOf returns where a server is; -1: it is not there, or is another one meanwhile.
func (s *Snapshot) indexOf(of Server) int {
	return slices.IndexFunc(s.servers, func(one server) bool { return one.Name == of.Name && one.Identity == of.Identity })
}

// replaced returns the Snapshot with another server in a place, of which the lists of some kinds are others.
func (s *Snapshot) replaced(i int, by server, kinds ...Kind) *Snapshot {
	next := &Snapshot{plan: s.plan, servers: slices.Clone(s.servers), gone: s.gone, merged: maps.Clone(s.merged)}
	next.servers[i] = by
	for _, kind := range kinds {
		next.merged[kind] = merge(next.plan, next.servers, kind)
	}
	return next
}

// with returns the server with another list.
func (s server) with(plan *names.Plan, kind Kind, list List) server {
	entries, notices, inputs := accept(kind, list.Entries)
	if kind == Tools {
		s.pins = s.pin(entries, s.sums())
	}
	for i, e := range entries {
		entries[i] = e.named(plan, s.Server, kind)
	}
	s.lists = maps.Clone(s.lists)
	if s.lists == nil {
		s.lists = map[Kind]known{}
	}
	s.lists[kind] = known{entries, notices, inputs, list.At, list.TTL, list.Private}
	return s
}

// named returns lists as a server of this plan offers them.
func named(lists map[Kind]known, plan *names.Plan, of Server) map[Kind]known {
	lists = maps.Clone(lists)
	for kind, list := range lists {
		list.entries = slices.Clone(list.entries)
		for i, e := range list.entries {
			list.entries[i] = e.named(plan, of, kind)
		}
		lists[kind] = list
	}
	return lists
}

func (s *Snapshot) server(name string) (server, bool) {
	i := slices.IndexFunc(s.servers, func(one server) bool { return one.Name == name })
	if i < 0 {
		return server{}, false
	}
	return s.servers[i], true
}

// merged is one list of all servers.
type merged struct {
	items     []Item         // in the order of their names
	held      []Item         // tools that are kept from clients, since they have changed
	counts    map[string]int // of the items, by server
	templates []template     // in file order
	hidden    []names.Hidden
	digest    [sha256.Size]byte
}

// merge collects what servers offer of a kind. The order of the items depends on their names only, so it is the same
// on every node, and a list changes only where something has changed.
func merge(plan *names.Plan, servers []server, kind Kind) *merged {
	m := &merged{counts: make(map[string]int)}
	owns, taken := m.owners(plan, servers, kind), make(map[string]bool)
	for _, from := range servers {
		for _, e := range from.lists[kind].entries {
			own := names.Own{Server: from.Name, Name: from.called(kind, e.own)}
			switch {
			case !owns(e.item.Name, own) || !from.Filter[kind].Offers(e.own):
				continue
			case taken[e.item.Name]: // the file calls two tools of the server the same
				m.hidden = append(m.hidden, names.Hidden{Own: names.Own{Server: from.Name, Name: e.own}, Advertised: e.item.Name, By: own})
				continue
			}
			if taken[e.item.Name] = true; e.changed && from.Pins == Block {
				m.held = append(m.held, e.item)
				continue
			}
			m.items = append(m.items, e.item)
			m.counts[from.Name]++
			if kind == Templates {
				m.addTemplate(e.item, from.Filter[Resources].Deny)
			}
		}
	}
	slices.SortFunc(m.items, func(a, b Item) int { return cmp.Compare(a.Name, b.Name) })
	m.digest = Digest(m.items)
	return m
}

// owners returns a function that says who has a name. Of a URI that is the first server that offers it.
func (m *merged) owners(plan *names.Plan, servers []server, kind Kind) func(string, names.Own) bool {
	var all []names.Own
	first := map[string]names.Own{}
	for _, from := range servers {
		if _, planned := plan.Key(from.Name); !planned {
			continue
		}
		for _, e := range from.lists[kind].entries {
			own := names.Own{Server: from.Name, Name: from.called(kind, e.own)}
			if !from.Filter[kind].Offers(e.own) {
				continue
			}
			all = append(all, own)
			if by, taken := first[e.own]; !taken {
				first[e.own] = own
			} else if kind == Resources || kind == Templates {
				m.hidden = append(m.hidden, names.Hidden{Own: own, Advertised: e.own, By: by})
			}
		}
	}
	if kind == Resources || kind == Templates {
		return func(uri string, own names.Own) bool { return first[uri] == own }
	}
	table := plan.Table(all)
	m.hidden = table.Hidden()
	return func(name string, own names.Own) bool {
		owner, offered := table.Own(name)
		return offered && owner == own
	}
}

// Find returns what clients mean by a name, or by the URI of a resource, or by the text of a template. Only what is
// offered is found.
func (s *Snapshot) Find(kind Kind, name string) (Item, bool) {
	items := s.merged[kind].items
	i, found := slices.BinarySearchFunc(items, name, func(item Item, name string) int { return cmp.Compare(item.Name, name) })
	if !found {
		return Item{}, false
	}
	return items[i], true
}

// Shows reports whether anything of a server is offered.
func (s *Snapshot) Shows(server string) bool {
	return slices.ContainsFunc(Kinds(), func(kind Kind) bool { return s.merged[kind].counts[server] > 0 })
}

// Items returns all that is offered of a kind, in order. The slice must not be changed.
func (s *Snapshot) Items(kind Kind) []Item { return s.merged[kind].items }

// Digest tells lists apart: it is the digest of all that is offered of a kind.
func (s *Snapshot) Digest(kind Kind) [sha256.Size]byte { return s.merged[kind].digest }

// Digest tells lists apart, for instance those that different clients may see.
func Digest(items []Item) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, item := range items {
		hash.Write(item.sum[:])
	}
	hash.Sum(sum[:0])
	return sum
}

// A part is what some clients see of a Snapshot.
type part struct {
	of  *Snapshot
	may func(Kind, Item) bool
}

// For returns what those see of a whole Snapshot who may see only some of it. The rest is in it as little as what does not exist, so whoever uses it cannot
// tell the two apart, by time either. Who owns a name or a URI is decided before: to hide something gives it to nobody else. May must always say the
// same of the same item; it is also asked about URIs that no server has listed.
func (s *Snapshot) For(may func(Kind, Item) bool) *Snapshot {
	seen := &Snapshot{plan: s.plan, servers: s.servers, merged: make(map[Kind]*merged), part: &part{s, may}}
	for _, kind := range Kinds() {
		m := &merged{counts: make(map[string]int)}
		for _, item := range s.merged[kind].items {
			if may(kind, item) {
				m.items = append(m.items, item)
				m.counts[item.Server]++
			}
		}
		m.held = slices.DeleteFunc(slices.Clone(s.merged[kind].held), func(item Item) bool { return !may(kind, item) })
		m.digest = Digest(m.items)
		seen.merged[kind] = m
	}
	return seen
}

// sums returns to what tools are pinned, by pinName.
func (s server) sums() map[string]string {
	sums := make(map[string]string, len(s.pins))
	for name, p := range s.pins {
		sums[name] = p.Sum
	}
	return sums
}

// pin compares the tools of a list with what they are pinned to, and pins those that are new, unless the cluster does that. Those beyond MaxEntries, with the ones that have gone, count as
// changed: nobody would know them again.
func (s server) pin(entries []entry, sums map[string]string) map[string]pin {
	pins := make(map[string]pin, len(sums))
	for name, sum := range sums {
		pins[name] = pin{Sum: sum}
	}
	for i := range entries {
		e, name := &entries[i], pinName(entries[i].own)
		sum := sumOf(definition(e.raw))
		p, known := pins[name]
		switch e.changed = false; {
		case !known && !s.Shared && len(pins) < MaxEntries:
			pins[name] = pin{Sum: sum}
		case p.Sum == sum:
		default:
			if e.changed = true; known {
				pins[name] = pin{p.Sum, s.was(e.own, p.Sum)}
			}
		}
	}
	return pins
}

// was returns the definition that a tool had, if it is still known.
func (s server) was(own, sum string) json.RawMessage {
	if was := s.pins[pinName(own)].Was; sumOf(was) == sum {
		return was
	}
	for _, e := range s.lists[Tools].entries {
		if e.own == own {
			if was := definition(e.raw); sumOf(was) == sum {
				return was
			}
		}
	}
	return nil
}

// Changed returns the tools of a server that are not as they were approved.
func (s *Snapshot) Changed(name string) (all []Changed) {
	one, _ := s.server(name)
	for _, e := range one.lists[Tools].entries {
		if e.changed && one.Pins != Off {
			is := definition(e.raw)
			p, pinned := one.pins[pinName(e.own)]
			all = append(all, Changed{name, e.own, differences(p.Was, is), one.Pins == Block, versionOf(is), one.Shared && !pinned})
		}
	}
	return all
}

// Approve returns the Snapshot in which tools of a server are approved as they are now, or all of them if none is named, and how many that are. One that
// has not changed is not among them, nor one that is named with another version; see Changed.IsCalled.
func (s *Snapshot) Approve(name string, tools ...string) (next *Snapshot, count int) {
	i := slices.IndexFunc(s.servers, func(one server) bool { return one.Name == name })
	if i < 0 {
		return s, 0
	}
	one, count := s.servers[i].approved(tools)
	if count == 0 {
		return s, 0
	}
	return s.replaced(i, one, Tools), count
}

// approved returns the server with other pins, and how many of them are others.
func (s server) approved(tools []string) (next server, count int) {
	list := s.lists[Tools]
	list.entries, s.pins, s.lists = slices.Clone(list.entries), maps.Clone(s.pins), maps.Clone(s.lists)
	for j, e := range list.entries {
		if !e.changed {
			continue
		}
		is := definition(e.raw)
		if c := (&Changed{Own: e.own, Version: versionOf(is)}); len(tools) == 0 || slices.ContainsFunc(tools, c.IsCalled) {
			list.entries[j].changed, s.pins[pinName(e.own)] = false, pin{Sum: sumOf(is)}
			count++
		}
	}
	if count > 0 {
		s.lists[Tools] = list
	}
	return s, count
}

// Held reports whether a name is that of a tool that is kept from clients since it has changed.
func (s *Snapshot) Held(name string) (Item, bool) {
	i := slices.IndexFunc(s.merged[Tools].held, func(item Item) bool { return item.Name == name })
	if i < 0 {
		return Item{}, false
	}
	return s.merged[Tools].held[i], true
}

// Kept returns the tools that are kept from clients because they are not as they were approved. The slice must not be changed.
func (s *Snapshot) Kept() []Item { return s.merged[Tools].held }
