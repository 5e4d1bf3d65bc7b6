//bowline:pure

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Who makes a request.
type Who struct {
	Identity string // "": nobody has logged in
	Claims   Claims // of the login; nil: there are none
	Person   bool   // somebody at the page of the gateway, whom no policy limits
	At       string // the group whose endpoint is used; "": that of everything
}

// Claims are what a login says of a user.
type Claims interface {
	// Claim returns the text of a claim, or its texts if it is a list. A claim that is neither, or is not there, has none.
	Claim(name string) []string
}

// A Policy is who may do what. It is immutable.
type Policy struct {
	rules, personas part
	claim           string // that has the groups of users
	rated           bool   // a persona has a rate
	lines           []mcpjson.Grant
	endpoints       []mcpjson.Grant // the groups of what is offered
}

// A part is one of the two things that must allow something.
type part struct {
	there    bool
	from, to int // of the lines
}

// New returns the policy of a file, or nil if the file limits nobody. The claim has the groups of users; "": it is called groups.
func New(of mcpjson.Policy, claim string) *Policy {
	if of.Rules == nil && of.Personas == nil && of.Groups == nil {
		return nil
	}
	count := len(of.Rules)
	return &Policy{
		rules: part{of.Rules != nil, 0, count}, personas: part{of.Personas != nil, count, count + len(of.Personas)},
		claim: cmp.Or(claim, "groups"), rated: slices.ContainsFunc(of.Personas, func(g mcpjson.Grant) bool { return g.Rate != mcpjson.Rate{} }), lines: slices.Concat(of.Rules, of.Personas), endpoints: of.Groups,
	}
}

// A Class is what those have in common who see the same. It is comparable; there are as many as the lines of the policy can tell users apart.
type Class struct {
	lines  [mcpjson.MaxGrants / 64]uint64 // one bit for each that applies
	person bool
	group  int // 1: the first; -1: one that the file does not have; 0: none
}

// IsPrivate reports whether users may see different things.
func (p *Policy) IsPrivate() bool { return p.rules.there || p.personas.there }

// HasGroup reports whether there is an endpoint of this name.
func (p *Policy) HasGroup(name string) bool { return p != nil && p.groupOf(name) > 0 }

// groupOf returns what a Class has in place of the name of an endpoint.
func (p *Policy) groupOf(name string) int {
	if name == "" {
		return 0
	}
	return cmp.Or(1+slices.IndexFunc(p.endpoints, func(g mcpjson.Grant) bool { return g.Name == name }), -1)
}

// ClassOf returns the class of somebody.
func (p *Policy) ClassOf(who Who) (class Class) {
	class.group = p.groupOf(who.At)
	if class.person = who.Person; class.person {
		return class
	}
	for i := range p.lines {
		if slices.ContainsFunc(p.lines[i].Who, func(text string) bool { return p.means(text, &who) }) {
			class.lines[i/64] |= 1 << (i % 64)
		}
	}
	return class
}

func (c *Class) has(line int) bool { return c.lines[line/64]>>(line%64)&1 == 1 }

// means reports whether a text of the file means somebody.
func (p *Policy) means(text string, who *Who) bool {
	claim, value := p.claim, ""
	if group, is := strings.CutPrefix(text, "group:"); is {
		value = group
	} else if claimed, is := strings.CutPrefix(text, "claim:"); is {
		claim, value, _ = strings.Cut(claimed, "=")
	} else {
		return catalogue.Matches(text, who.Identity)
	}
	return who.Claims != nil && slices.ContainsFunc(who.Claims.Claim(claim), func(has string) bool { return catalogue.Matches(value, has) })
}

// A Decision says whether somebody may see and use something.
type Decision struct {
	Allowed bool
	By      string // the place in the file of what decided, and why
}

// Decide decides about an item of a kind. It is the only place where that is done.
func (p *Policy) Decide(class Class, kind catalogue.Kind, item catalogue.Item) Decision {
	if class.person {
		return Decision{Allowed: true, By: "a person at the page may do everything"}
	}
	d := Decision{Allowed: true, By: "everybody may do everything here"}
	if class.group != 0 {
		if d = p.byGroup(class.group, kind, item); !d.Allowed {
			return d
		}
	}
	if p.personas.there {
		if d = p.byPersonas(&class, kind, item); !d.Allowed {
			return d
		}
	}
	if p.rules.there {
		d = p.byRules(&class, item)
	}
	return d
}

// RateOf returns how much somebody may ask: of each number the most that one of the user's personas gives, and that of everybody if none gives one.
func (p *Policy) RateOf(who Who, everybody mcpjson.Rate) mcpjson.Rate {
	if p == nil || !p.rated {
		return everybody
	}
	var own mcpjson.Rate
	class := p.ClassOf(who)
	for i := p.personas.from; i < p.personas.to; i++ {
		if class.has(i) {
			own.PerMinute, own.InFlight = max(own.PerMinute, p.lines[i].Rate.PerMinute), max(own.InFlight, p.lines[i].Rate.InFlight)
		}
	}
	return mcpjson.Rate{PerMinute: cmp.Or(own.PerMinute, everybody.PerMinute), InFlight: cmp.Or(own.InFlight, everybody.InFlight)}
}

// RateBy returns the places of the file that say what RateOf does, for perMinute and for inFlight; "": nothing limits that.
func (p *Policy) RateBy(who Who, everybody mcpjson.Rate) (perMinute, inFlight string) {
	return p.rateBy(who, everybody, "perMinute", func(r mcpjson.Rate) int { return r.PerMinute }), p.rateBy(who, everybody, "inFlight", func(r mcpjson.Rate) int { return r.InFlight })
}

func (p *Policy) rateBy(who Who, everybody mcpjson.Rate, member string, of func(mcpjson.Rate) int) string {
	most := of(p.RateOf(who, everybody))
	if most == 0 {
		return ""
	}
	if place := p.personaWith(who, func(g *mcpjson.Grant) bool { return of(g.Rate) == most }); place != "" {
		return place + ".rate." + member
	}
	return "bowline.rate." + member
}

func (p *Policy) personaWith(who Who, is func(*mcpjson.Grant) bool) (place string) {
	if p == nil {
		return ""
	}
	class := p.ClassOf(who)
	for i := p.personas.from; i < p.personas.to; i++ {
		if class.has(i) && is(&p.lines[i]) {
			return p.lines[i].Place
		}
	}
	return ""
}

// View returns what a class sees of a snapshot.
func (p *Policy) View(of *catalogue.Snapshot, class Class) *catalogue.Snapshot {
	return of.For(func(kind catalogue.Kind, item catalogue.Item) bool { return p.Decide(class, kind, item).Allowed })
}

// byGroup decides what an endpoint offers.
func (p *Policy) byGroup(group int, kind catalogue.Kind, item catalogue.Item) Decision {
	if group < 0 {
		return Decision{By: "bowline.groups: there is no such group"}
	}
	g := &p.endpoints[group-1]
	if by := covering(g.Deny, item); by != "" {
		return Decision{By: by}
	}
	if by := offers(g, kind, item); by != "" {
		return Decision{Allowed: true, By: by}
	}
	return Decision{By: g.Place}
}

// byRules takes the first that names the item.
func (p *Policy) byRules(class *Class, item catalogue.Item) Decision {
	for i := p.rules.from; i < p.rules.to; i++ {
		if !class.has(i) {
			continue
		}
		if by := covering(p.lines[i].Deny, item); by != "" {
			return Decision{By: by}
		}
		if by := covering(p.lines[i].Allow, item); by != "" {
			return Decision{Allowed: true, By: by}
		}
	}
	return Decision{By: "bowline.policy: no rule for this user names it"}
}

// byPersonas lets everything be that one allows and none denies.
func (p *Policy) byPersonas(class *Class, kind catalogue.Kind, item catalogue.Item) Decision {
	d := Decision{By: "bowline.personas: no persona of this user allows it"}
	for i := p.personas.from; i < p.personas.to; i++ {
		if !class.has(i) {
			continue
		}
		if by := covering(p.lines[i].Deny, item); by != "" {
			return Decision{By: by}
		}
		if by := offers(&p.lines[i], kind, item); by != "" && !d.Allowed {
			d = Decision{Allowed: true, By: by}
		}
	}
	return d
}

// offers returns the place of what allows an item, or "".
func offers(g *mcpjson.Grant, kind catalogue.Kind, item catalogue.Item) string {
	switch {
	case g.Servers != nil && !slices.Contains(g.Servers, item.Server), g.ReadOnly && kind == catalogue.Tools && !item.ReadOnly:
		return ""
	case g.Allow == nil:
		return g.Place
	}
	return covering(g.Allow, item)
}

// covering returns the place of the first pattern that names an item, or "".
func covering(patterns []mcpjson.Pattern, item catalogue.Item) string {
	for i := range patterns {
		if covers(patterns[i].Text, item) {
			return patterns[i].Place
		}
	}
	return ""
}

// Names reports whether one of some patterns names an item.
func Names(patterns []mcpjson.Pattern, item catalogue.Item) bool {
	return slices.ContainsFunc(patterns, func(p mcpjson.Pattern) bool { return covers(p.Text, item) })
}

// covers tries every slash of a pattern: names of servers may have some, and names of tools and URIs, too.
func covers(pattern string, item catalogue.Item) bool {
	if pattern == "*" {
		return true
	}
	for i := range len(pattern) {
		if pattern[i] == '/' && catalogue.Matches(pattern[:i], item.Server) && catalogue.Matches(pattern[i+1:], item.Own) {
			return true
		}
	}
	return false
}
