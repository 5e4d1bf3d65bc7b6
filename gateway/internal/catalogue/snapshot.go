//bowline:pure

package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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
	merged  map[Kind]*merged
	part    *part // nil: it is the whole
}

// A server is never changed, but replaced.
type server struct {
	Server
	lists map[Kind]known
}

// A known list is the last one of a server.
type known struct {
	entries []entry
	notices []string
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

	ReadOnly bool              // a tool says that it only reads
	sum      [sha256.Size]byte // of Name and Raw
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

// Apply returns the Snapshot with these servers, in file order. Those that were there keep what they have said, unless
// their identity has changed.
func (s *Snapshot) Apply(plan *names.Plan, servers []Server) *Snapshot {
	next := make([]server, len(servers))
	for i, one := range servers {
		next[i] = server{Server: one}
		if before, ok := s.server(one.Name); ok && before.Identity == one.Identity {
			next[i].lists = named(before.lists, plan, one)
		}
	}
	return build(plan, next)
}

// Learn returns the Snapshot with a new list of a server. A list of a server that is not there, or that has another
// identity meanwhile, changes nothing.
func (s *Snapshot) Learn(from Server, kind Kind, list List) *Snapshot {
	i := slices.IndexFunc(s.servers, func(one server) bool { return one.Name == from.Name && one.Identity == from.Identity })
	if i < 0 || !slices.Contains(Kinds(), kind) {
		return s
	}
	next := &Snapshot{plan: s.plan, servers: slices.Clone(s.servers), merged: maps.Clone(s.merged)}
	next.servers[i] = next.servers[i].with(next.plan, kind, list)
	next.merged[kind] = merge(next.plan, next.servers, kind)
	return next
}

// with returns the server with another list.
func (s server) with(plan *names.Plan, kind Kind, list List) server {
	entries, notices := accept(kind, list.Entries)
	for i, e := range entries {
		entries[i] = e.named(plan, s.Server, kind)
	}
	s.lists = maps.Clone(s.lists)
	if s.lists == nil {
		s.lists = map[Kind]known{}
	}
	s.lists[kind] = known{entries, notices, list.At, list.TTL, list.Private}
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
			taken[e.item.Name] = true
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

// Hidden returns what is not offered since another has its name or URI.
func (s *Snapshot) Hidden(kind Kind) []names.Hidden { return slices.Clone(s.merged[kind].hidden) }

// Missing returns the servers of which no list of a kind is known yet, in file order. Until they have answered, a list
// would look complete to a client and not be so.
func (s *Snapshot) Missing(kind Kind) []string {
	var missing []string
	for _, one := range s.servers {
		if _, known := one.lists[kind]; !known {
			missing = append(missing, one.Name)
		}
	}
	return missing
}

// An Age says how much of a list is offered, and since when it is known.
type Age struct {
	Kind    Kind      `json:"kind"`
	Entries int       `json:"entries"`
	At      time.Time `json:"at"`
}

// Ages returns the lists that are known of a server.
func (s *Snapshot) Ages(name string) []Age {
	var ages []Age
	one, _ := s.server(name)
	for _, kind := range Kinds() {
		if list, known := one.lists[kind]; known {
			ages = append(ages, Age{kind, s.merged[kind].counts[name], list.at})
		}
	}
	return ages
}

// Notices returns what of a server is not offered as the server has it: MaxNotices for each cause and kind, with the
// number of the others.
func (s *Snapshot) Notices(name string) []Notice {
	var notices []Notice
	one, _ := s.server(name)
	for _, kind := range Kinds() {
		list := one.lists[kind]
		var renamed, hidden texts
		for _, e := range list.entries {
			if e.notice != "" {
				renamed.add("%s", e.notice)
			}
		}
		for _, h := range s.merged[kind].hidden {
			if h.Server == name {
				hidden.add("%s is hidden: %s", shown(h.Name), why(h))
			}
		}
		for _, text := range slices.Concat(list.notices, renamed.all(), hidden.all()) {
			notices = append(notices, Notice{name, kind, text})
		}
	}
	return notices
}

// why says why a thing is hidden.
func why(h names.Hidden) string {
	if h.By == (names.Own{}) {
		return "names that begin so are those of another server"
	}
	return fmt.Sprintf("%s has the name %s", shown(h.By.Server), shown(h.Advertised))
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
		m.digest = Digest(m.items)
		seen.merged[kind] = m
	}
	return seen
}
