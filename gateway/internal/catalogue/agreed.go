//bowline:pure

package catalogue

import (
	"maps"
	"slices"
)

// Seen returns the sums of the tools of a list, by which a cluster pins them.
func Seen(list List) map[string]string {
	entries, _, _ := accept(Tools, list.Entries)
	sums := make(map[string]string, len(entries))
	for _, e := range entries {
		sums[pinName(e.own)] = sumOf(definition(e.raw))
	}
	return sums
}

// Sums returns what the tools of a server are pinned to, and of those that are not pinned what they are. It is nil if there is no such server.
func (s *Snapshot) Sums(of Server) map[string]string {
	i := s.indexOf(of)
	if i < 0 {
		return nil
	}
	one := s.servers[i]
	sums := one.sums()
	for _, e := range one.lists[Tools].entries {
		if name := pinName(e.own); sums[name] == "" {
			sums[name] = sumOf(definition(e.raw))
		}
	}
	return sums
}

// Approval returns the sums that Approve would pin.
func (s *Snapshot) Approval(name string, tools ...string) map[string]string {
	next, count := s.Approve(name, tools...)
	if count == 0 {
		return nil
	}
	before, _ := s.server(name)
	after, _ := next.server(name)
	sums := make(map[string]string, count)
	for tool, p := range after.pins {
		if before.pins[tool].Sum != p.Sum {
			sums[tool] = p.Sum
		}
	}
	return sums
}

// Pin returns the Snapshot in which the tools of a server are pinned to these sums, and to no others.
func (s *Snapshot) Pin(of Server, sums map[string]string) *Snapshot {
	i := s.indexOf(of)
	if i < 0 {
		return s
	}
	one := s.servers[i]
	list, listed := one.lists[Tools]
	list.entries = slices.Clone(list.entries)
	pins := one.pin(list.entries, sums)
	if maps.EqualFunc(one.pins, pins, func(a, b pin) bool { return a.Sum == b.Sum }) {
		return s
	}
	one.pins, one.lists = pins, maps.Clone(one.lists)
	if listed {
		one.lists[Tools] = list
	}
	return s.replaced(i, one, Tools)
}

// ListOf returns a list as a server has answered it.
func (s *Snapshot) ListOf(of Server, kind Kind) (list List, isKnown bool) {
	i := s.indexOf(of)
	if i < 0 {
		return List{}, false
	}
	known, isKnown := s.servers[i].lists[kind]
	return List{Entries: rawOf(known.entries), At: known.at, TTL: known.ttl, Private: known.private}, isKnown
}

// IsThere reports whether the file has a server, and what it runs is the same.
func (s *Snapshot) IsThere(of Server) bool { return s.indexOf(of) >= 0 }

// Servers returns all servers, in file order.
func (s *Snapshot) Servers() []Server {
	all := make([]Server, len(s.servers))
	for i, one := range s.servers {
		all[i] = one.Server
	}
	return all
}
