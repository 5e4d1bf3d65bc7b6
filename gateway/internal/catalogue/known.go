//bowline:pure

package catalogue

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
)

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

// Fail returns the Snapshot with why a server has not said what it has of a kind, although it was asked. A list that is known stays.
func (s *Snapshot) Fail(from Server, kind Kind, why error) *Snapshot {
	i := s.indexOf(from)
	if i < 0 {
		return s
	}
	failed := s.servers[i]
	if _, known := failed.lists[kind]; known {
		return s
	}
	failed.fails = maps.Clone(failed.fails)
	if failed.fails == nil {
		failed.fails = make(map[Kind]error)
	}
	failed.fails[kind] = why
	return s.replaced(i, failed, kind)
}

// Forget returns the Snapshot without why a server has not said what it has: it is another process, say, or is asked again.
func (s *Snapshot) Forget(from Server) *Snapshot {
	i := s.indexOf(from)
	if i < 0 || s.servers[i].fails == nil {
		return s
	}
	fresh := s.servers[i]
	fresh.fails = nil
	return s.replaced(i, fresh)
}

// Awaited returns the Missing ones of which nothing is known that keeps them from saying what they have.
func (s *Snapshot) Awaited(kind Kind) []string {
	return slices.DeleteFunc(s.Missing(kind), func(name string) bool { return s.Failure(name, kind) != nil })
}

// Failure returns why a server has not said what it has of a kind; nil: it has, or was not asked.
func (s *Snapshot) Failure(name string, kind Kind) error {
	one, _ := s.server(name)
	if _, known := one.lists[kind]; known {
		return nil
	}
	return one.fails[kind]
}

// MayMean returns what a tool or prompt is that nobody offers now, and that a server may have of which no list is known yet: one Item for each of these servers, in
// file order, without what only the server knows. What the file or For hides is not among them.
func (s *Snapshot) MayMean(kind Kind, name string) (items []Item) {
	for _, server := range s.Missing(kind) {
		one, _ := s.server(server)
		called, could := s.plan.Own(server, name)
		item := Item{Server: server, Own: one.ownOf(kind, called), Name: name, Says: Says{ReadOnly: true}}
		if could && item.Own != "" && one.Filter[kind].Offers(item.Own) && (s.part == nil || s.part.may(kind, item)) {
			items = append(items, item)
		}
	}
	return items
}

// ownOf undoes what called does; "": no tool is called so.
func (s Server) ownOf(kind Kind, called string) string {
	if kind != Tools {
		return called
	}
	for own, name := range s.Rename {
		if name == called {
			return own
		}
	}
	if _, renamed := s.Rename[called]; renamed {
		return ""
	}
	return called
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
		var changed texts
		if kind == Tools {
			for _, c := range s.Changed(name) {
				changed.add("%s", c.String())
			}
		}
		for _, text := range slices.Concat(changed.all(), list.notices, renamed.all(), hidden.all()) {
			notices = append(notices, Notice{name, kind, text})
		}
	}
	return notices
}

// RefusedInputs returns those of the notices that say which input schemas of a server clients may refuse.
func (s *Snapshot) RefusedInputs(name string) []string {
	one, _ := s.server(name)
	return one.lists[Tools].inputs
}

// why says why a thing is hidden.
func why(h names.Hidden) string {
	if h.By == (names.Own{}) {
		return "names that begin so are those of another server"
	}
	return fmt.Sprintf("%s has the name %s", shown(h.By.Server), shown(h.Advertised))
}
