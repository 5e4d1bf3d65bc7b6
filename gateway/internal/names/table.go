//bowline:pure

package names

import (
	"cmp"
	"slices"
	"strings"
)

// An Own is a thing as its server calls it: a tool or a prompt.
type Own struct{ Server, Name string }

// A Table holds the names of one kind of things, each with its owner. It is immutable.
type Table struct {
	owners map[string]Own
	hidden []Hidden
}

// Hidden is a thing that is not offered, since another has its name. That happens to bare names, and to names that a
// server invents so that they look like one that was changed.
type Hidden struct {
	Own
	Advertised string
	By         Own // has the name; nobody, if it begins as those of another server, which may offer it at any time
}

// Table gives each name to one of the things: first to those whose name begins with their server, then to the first
// in file order, then to the one whose own name was kept. The order of the list does not matter, and things without
// a name are left out.
func (p *Plan) Table(all []Own) *Table {
	t, reserved := &Table{owners: make(map[string]Own, len(all))}, p.reserved()
	for _, c := range p.claims(all) {
		t.give(c, reserved)
	}
	return t
}

// claims returns the things that have a name, in the order in which they get it.
func (p *Plan) claims(all []Own) []claim {
	claims := make([]claim, 0, len(all))
	for _, own := range all {
		if name, notice := p.Name(own.Server, own.Name); name != "" {
			claims = append(claims, claim{own, name, p.keys[own.Server] == noPrefix, p.rank[own.Server], notice != ""})
		}
	}
	slices.SortFunc(claims, claim.compare)
	return claims
}

// give gives a name to who claims it, or notes that somebody else has it.
func (t *Table) give(c claim, reserved map[string]bool) {
	begins, _, _ := strings.Cut(c.name, between)
	switch owner, taken := t.owners[c.name]; {
	case !taken && c.bare && begins != c.name && reserved[begins]:
		t.hidden = append(t.hidden, Hidden{c.own, c.name, Own{}})
	case !taken:
		t.owners[c.name] = c.own
	case owner != c.own:
		t.hidden = append(t.hidden, Hidden{c.own, c.name, owner})
	}
}

// reserved returns what the names of servers begin with. While such a server is away, or has not answered yet, its calls must not go to one with
// bare names.
func (p *Plan) reserved() map[string]bool {
	keys := make(map[string]bool, len(p.keys))
	for _, key := range p.keys {
		keys[key] = true
	}
	return keys
}

// Own returns what a server calls a thing with this name, if it may have one. A name that was changed is taken for the server's own: what
// it was made of cannot be told.
func (p *Plan) Own(server, name string) (own string, could bool) {
	key, known := p.keys[server]
	if known && key != noPrefix {
		own, could = strings.CutPrefix(name, key+between)
		return own, could && own != ""
	}
	begins, _, _ := strings.Cut(name, between)
	return name, known && name != "" && (begins == name || !p.reserved()[begins])
}

// A claim is a thing that wants a name.
type claim struct {
	own     Own
	name    string
	bare    bool
	rank    int
	changed bool
}

func (c claim) compare(d claim) int {
	return cmp.Or(compareBool(c.bare, d.bare), cmp.Compare(c.rank, d.rank), compareBool(c.changed, d.changed), cmp.Compare(c.own.Name, d.own.Name))
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// Own returns what a client means by a name.
func (t *Table) Own(name string) (own Own, ok bool) {
	own, ok = t.owners[name]
	return own, ok
}

// Hidden returns the things that are not offered since another has their name, in a stable order.
func (t *Table) Hidden() []Hidden { return slices.Clone(t.hidden) }
