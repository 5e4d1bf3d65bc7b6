//bowline:pure

package catalogue

import (
	"fmt"
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

// why says why a thing is hidden.
func why(h names.Hidden) string {
	if h.By == (names.Own{}) {
		return "names that begin so are those of another server"
	}
	return fmt.Sprintf("%s has the name %s", shown(h.By.Server), shown(h.Advertised))
}
