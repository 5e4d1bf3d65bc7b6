package mcpjson

import (
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/suggest"
)

// readPolicy reads who may do what. A mistake in it is one of the whole block, so that a file
// with a slip in its policy is not applied: with the rest of the policy, users might see too much
// or too little.
func readPolicy(v *values, own map[string]node, login Login) Policy {
	p := Policy{Rules: readRules(v, own["policy"], login), Personas: readPersonas(v, own["personas"], login), Groups: readGroups(v, own["groups"])}
	if len(p.Rules)+len(p.Personas) > MaxGrants {
		v.wrong(own["policy"], "there are more than %d rules and personas", MaxGrants)
	}
	return p
}

// readRules reads rules in the order in which they count. A rule that allows and denies nothing
// would never decide, so it is a slip: the name of a key is wrong, or what stands in it was
// commented out.
func readRules(v *values, n node, login Login) []Grant {
	if n.absent() {
		return nil
	}
	rules := []Grant{} // without one, it denies everything
	for _, element := range v.elements(n, "an array of rules") {
		names := []string{"who", "allow", "deny"}
		own := v.settings(element, v.unknown(names), names...)
		rule := Grant{Place: v.place(element), Who: v.readWho(own["who"], login), Allow: v.patterns(own["allow"]), Deny: v.patterns(own["deny"])}
		if own["allow"].absent() && own["deny"].absent() {
			v.wrong(element, "it neither allows nor denies anything")
		}
		rules = append(rules, rule)
	}
	return rules
}

// readPersonas reads sets of what users may do. One that nobody has is a mistake, and not the
// same as one that everybody has: in a file that somebody else has written, a forgotten key must
// not give anything away.
func readPersonas(v *values, n node, login Login) []Grant {
	if n.absent() {
		return nil
	}
	personas := []Grant{}
	for _, m := range v.members(n) {
		names := []string{"who", "servers", "allow", "deny", "readOnly", "rate"}
		own := v.settings(m.node, v.unknown(names), names...)
		persona := readGrant(v, m, own)
		persona.Rate = readRate(v, own["rate"])
		if persona.Who = v.readWho(own["who"], login); own["who"].absent() {
			v.wrong(m.called(), "who has it? For everybody, write \"who\": \"*\"")
		}
		personas = append(personas, persona)
	}
	return personas
}

// readGroups reads endpoints. Their names are parts of URLs, and one is taken.
func readGroups(v *values, n node) (groups []Grant) {
	for _, m := range v.members(n) {
		names := []string{"servers", "allow", "deny", "readOnly"}
		own := v.settings(m.node, v.unknown(names), names...)
		switch {
		case m.name == "" || strings.ContainsFunc(m.name, unusual):
			v.wrong(m.called(), "the name of a group is part of a URL: only letters, digits, - and _ are possible")
		case m.name == "search":
			v.wrong(m.called(), "the gateway has an endpoint of this name already")
		}
		groups = append(groups, readGrant(v, m, own))
	}
	return groups
}

// readGrant reads what a member with a name allows. The name is for people, and for the record of
// a request; two personas are told apart by where they stand.
func readGrant(v *values, m member, own map[string]node) Grant {
	return Grant{
		Place: v.place(m.called()), Name: m.name, Servers: v.servers(own["servers"]),
		Allow: v.patterns(own["allow"]), Deny: v.patterns(own["deny"]), ReadOnly: v.boolean(own["readOnly"], false),
	}
}

// readWho reads one text or several. Without any it is everybody, and with an empty array nobody.
// A text that can mean nobody is a mistake: a rule that denies something to nobody denies
// nothing.
func (v *values) readWho(n node, of Login) (who []string) {
	if n.absent() {
		return []string{"*"}
	}
	all := []node{n}
	if n.value.Kind() != '"' {
		all = v.elements(n, "a string, or an array of strings")
	}
	for _, one := range all {
		_, text, ok := v.string(one)
		if why := meansNobody(text, of); ok && why != "" {
			v.wrong(one, "%s", why)
		}
		who = append(who, text)
	}
	return who
}

// patterns reads patterns. An array that is empty is none: who writes it means that. The server
// of a pattern must be one of the file, even if it is disabled there, unless the pattern leaves
// open which one it is.
func (v *values) patterns(n node) (all []Pattern) {
	for _, one := range v.elements(n, "an array of strings") {
		written, text, ok := v.string(one)
		server, _, has := strings.Cut(text, "/")
		switch {
		case !ok || text == "*":
		case !has:
			v.wrong(one, "expected a server, a slash and a name, such as files/read_*, or *")
		case strings.HasSuffix(text, "/") && slices.ContainsFunc(v.file.entries, func(e *entry) bool { return text == e.name+"/" }):
			v.wrong(one, "it names nothing: add * for everything that the server has, or a name")
		case !strings.ContainsAny(server, "*?") && !slices.ContainsFunc(v.file.entries, func(e *entry) bool { return strings.HasPrefix(text, e.name+"/") }):
			name, _, _ := strings.Cut(written, "/")
			v.wrongServer(one, name)
		}
		all = append(all, Pattern{text, v.place(one)})
	}
	if all == nil && !n.absent() {
		return []Pattern{}
	}
	return all
}

// servers reads names of servers, and not patterns: what a server may do that somebody adds to
// the file later is for whoever adds it to say. One that the file does not have is a mistake:
// with another letter it would mean the opposite of what is written.
func (v *values) servers(n node) (all []string) {
	for _, one := range v.elements(n, "an array of strings") {
		written, name, ok := v.string(one)
		if ok && !slices.ContainsFunc(v.file.entries, func(e *entry) bool { return e.name == name }) {
			v.wrongServer(one, written)
		}
		all = append(all, name)
	}
	if all == nil && !n.absent() {
		return []string{}
	}
	return all
}

// wrongServer shows the name as it is in the file, in which a variable may stand.
func (v *values) wrongServer(n node, name string) {
	var names []string
	for _, e := range v.file.entries {
		names = append(names, e.name)
	}
	v.wrong(n, "the file has no server %s: %s", quote(name), suggest.Among(name, names))
}
