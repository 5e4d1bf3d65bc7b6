package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// A User is somebody whose requests are decided about.
type User struct {
	Identity string              // as a login establishes it, such as "token ada"; "": there is none
	Claims   map[string][]string // of the login
	Group    string              // at whose endpoint; "": at that of everything
}

// Claim implements the claims of a login.
func (u User) Claim(name string) []string { return u.Claims[name] }

// A Verdict says whether a user may see and use something.
type Verdict struct {
	Server, Name string // the name that the server uses, or the URI
	Allowed      bool
	By           string // the place in the file of what has decided, or why nothing did
}

// Explain returns what a file decides for a user. A name is one that clients use, a URI, or a server of the file, a slash, and the name that the server
// uses, which need not be known. Without names it is about everything that the catalogue knows of the servers of the file. It starts nothing, and
// is not about the file that was applied. It fails with a *ConfigError, or if a name means nothing.
func (g *Gateway) Explain(file *mcpjson.File, user User, names ...string) ([]Verdict, error) {
	p, err := planOf(file, g.given(), nil)
	if err != nil {
		return nil, err
	}
	known, verdicts := g.known.Snapshot().Apply(p.names, p.servers()), []Verdict{}
	if len(names) == 0 {
		return p.decideAll(known, user), nil
	}
	for _, name := range names {
		kind, item, found := p.find(known, file.Names(), name)
		if !found {
			return nil, fmt.Errorf("%q is not known: write a server of the file, a slash, and a name", name)
		}
		verdicts = append(verdicts, p.decide(known, user, kind, item))
	}
	return verdicts, nil
}

// A RateVerdict says how much a user may ask of all servers together, and the places in the file that say so; "": nothing limits that.
type RateVerdict struct {
	mcpjson.Rate
	PerMinuteBy, InFlightBy string
}

// ExplainRate returns how much a file lets a user ask of all servers together: that of the user's personas, or of everybody. It fails as Explain does.
func (g *Gateway) ExplainRate(file *mcpjson.File, user User) (v RateVerdict, err error) {
	p, err := planOf(file, g.given(), nil)
	if err != nil {
		return v, err
	}
	top, err := file.Gateway()
	if err != nil {
		return v, err
	}
	who := policy.Who{Identity: user.Identity, Claims: user, At: user.Group}
	v.Rate = p.policy.RateOf(who, top.Rate)
	v.PerMinuteBy, v.InFlightBy = p.policy.RateBy(who, top.Rate)
	return v, nil
}

// decideAll gives verdicts on everything that is known, also on what is kept from clients.
func (p *plan) decideAll(known *catalogue.Snapshot, user User) (verdicts []Verdict) {
	verdicts = []Verdict{}
	for _, kind := range catalogue.Kinds() {
		for _, item := range known.Items(kind) {
			verdicts = append(verdicts, p.decide(known, user, kind, item))
		}
	}
	for _, item := range known.Kept() {
		verdicts = append(verdicts, p.decide(known, user, catalogue.Tools, item))
	}
	return verdicts
}

// decide gives the verdict of a plan, as the gateway would.
func (p *plan) decide(known *catalogue.Snapshot, user User, kind catalogue.Kind, item catalogue.Item) Verdict {
	v := Verdict{Server: item.Server, Name: item.Own, Allowed: true, By: "the file has no policy"}
	if i := slices.IndexFunc(p.entries, func(e entry) bool { return e.Name == item.Server }); i >= 0 && !p.entries[i].Filter[kind].Offers(item.Own) {
		v.Allowed, v.By = false, fmt.Sprintf("the entry of %s does not offer it (bowline.%s)", item.Server, kind)
	} else if p.policy != nil {
		class := p.policy.ClassOf(policy.Who{Identity: user.Identity, Claims: user, At: user.Group})
		d := p.policy.Decide(class, kind, item)
		v.Allowed, v.By = d.Allowed, d.By
		if _, listed := known.Find(kind, item.Name); kind == catalogue.Resources && d.Allowed && !listed {
			v.byTemplate(p.policy.View(known, class))
		}
	}
	if _, kept := known.Held(item.Name); kept && kind == catalogue.Tools && v.Allowed {
		v.Allowed, v.By = false, "bowline.pins: it has changed since it was approved"
	}
	return v
}

// byTemplate takes back what a policy allows of a URI that no server lists, if it is not found by a template that is allowed.
func (v *Verdict) byTemplate(seen *catalogue.Snapshot) {
	if _, v.Allowed = seen.Resource(v.Name); v.Allowed {
		return
	}
	v.By = "the template by which it is found is not allowed"
	if !catalogue.IsPlain(v.Name) {
		v.By = "it has a shorter spelling, and only that is found"
	}
}

// find finds what a name means. What is not known is taken for a tool that may write.
func (p *plan) find(known *catalogue.Snapshot, servers []string, name string) (kind catalogue.Kind, item catalogue.Item, found bool) {
	isMeant := func(item catalogue.Item) bool { return item.Name == name || item.Server+"/"+item.Own == name }
	for _, kind := range catalogue.Kinds() {
		if i := slices.IndexFunc(known.Items(kind), isMeant); i >= 0 {
			return kind, known.Items(kind)[i], true
		}
	}
	if i := slices.IndexFunc(known.Kept(), isMeant); i >= 0 {
		return catalogue.Tools, known.Kept()[i], true
	}
	if item, found := known.Resource(name); found {
		return catalogue.Resources, item, true
	}
	for _, server := range servers {
		if own, is := strings.CutPrefix(name, server+"/"); is {
			return catalogue.Tools, catalogue.Item{Server: server, Own: own}, true
		}
	}
	return "", item, false
}
