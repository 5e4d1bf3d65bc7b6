package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/mcpjson"
)

type claims map[string][]string

func (c claims) Claim(name string) []string { return c[name] }

// read returns the policy of a block bowline.
func read(t testing.TB, block string) *Policy {
	t.Helper()
	f, err := mcpjson.Parse("m", []byte(`{"mcpServers":{"a":{"command":"x"},"@b/c":{"command":"x"},"@b":{"command":"x"}},"bowline":{`+block+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	top, err := f.Gateway()
	if err != nil {
		t.Fatal(err)
	}
	return New(top.Policy, top.Login.Groups)
}

// Of rules, the first one that names a thing and is about the user decides. What no rule names is denied. In personas, deny wins in whatever order. Both must allow.
//
// Guarantees: G-0098.2, G-0098.3
func TestDecisions(t *testing.T) {
	ada := Who{Identity: "token ada"}
	dev := Who{Identity: "https://i s", Claims: claims{"groups": {"dev", "x"}, "mail": {"s@e"}, "at": {"a=b"}}}
	tool := func(server, own string) catalogue.Item { return catalogue.Item{Server: server, Own: own} }
	for _, c := range []struct {
		block string
		who   Who
		item  catalogue.Item
		want  string // the beginning of the place; "" before it: denied
	}{
		{`"policy": [{"allow": ["a/x*"]}, {"deny": ["*"]}]`, ada, tool("a", "xy"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["a/x*"]}, {"deny": ["*"]}]`, ada, tool("a", "y"), "-policy[1].deny[0]"},
		{`"policy": [{"allow": ["a/*"], "deny": ["a/y"]}]`, ada, tool("a", "y"), "-policy[0].deny[0]"},
		{`"policy": [{"deny": ["a/y"]}, {"allow": ["a/*"]}]`, ada, tool("a", "y"), "-policy[0].deny[0]"},
		{`"policy": [{"allow": ["a/y"]}, {"deny": ["a/*"]}]`, ada, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["a/y"]}]`, ada, tool("a", "Y"), "-policy: no rule"},
		{`"policy": []`, ada, tool("a", "y"), "-policy: no rule"},
		{`"policy": [{"who": [], "allow": ["*"]}]`, ada, tool("a", "y"), "-policy: no rule"},
		{`"policy": [{"who": "token *", "allow": ["*"]}]`, ada, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "token ad", "allow": ["*"]}]`, ada, tool("a", "y"), "-policy: no rule"},
		{`"policy": [{"who": ["token x", "token ada"], "allow": ["*"]}]`, ada, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "*", "allow": ["*"]}]`, Who{}, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "?*", "allow": ["*"]}]`, Who{}, tool("a", "y"), "-policy: no rule"},
		{`"policy": [{"who": "group:dev", "allow": ["*"]}]`, dev, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "group:dev", "allow": ["*"]}]`, Who{Identity: "group:dev"}, tool("a", "y"), "-policy: no rule"},
		{`"policy": [{"who": "claim:mail=*@e", "allow": ["*"]}]`, dev, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "claim:at=a=b", "allow": ["*"]}]`, dev, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"who": "claim:mail=dev", "allow": ["*"]}]`, dev, tool("a", "y"), "-policy: no rule"},
		{`"auth": {"issuers": ["https://i"], "groups": "mail"}, "policy": [{"who": "group:s@e", "allow": ["*"]}]`, dev, tool("a", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["@b/c/y"]}]`, ada, tool("@b/c", "y"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["@b/c/y"]}]`, ada, tool("@b", "c/y"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["@b/*"]}]`, ada, tool("@b/c", "y"), "-policy: no rule"},
		{`"policy": [{"allow": ["a/file:///p/*"]}]`, ada, tool("a", "file:///p/q/r"), "+policy[0].allow[0]"},
		{`"policy": [{"allow": ["a/file:///p/*"]}]`, ada, tool("a", "file:///q"), "-policy: no rule"},
		{`"policy": [{"allow": ["??/x"]}]`, ada, tool("a", "/x"), "-policy: no rule"},
		{`"personas": {"p": {"who": "token bob"}, "q": {"who": "token ada"}}`, ada, tool("a", "y"), "+personas.q"},
		{`"personas": {"p": {"who": "*", "allow": ["a/*"]}, "q": {"who": "*"}}`, ada, tool("a", "y"), "+personas.p.allow[0]"},
		{`"groups": {"g": {"allow": []}}`, ada, tool("a", "y"), "+everybody"},
		{`"personas": {}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "token ada"}}`, ada, tool("a", "y"), "+personas.p"},
		{`"personas": {"p": {"who": "token bob"}}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "*", "allow": []}}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "*", "servers": []}}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "*", "servers": ["@b"]}}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "*"}, "q": {"who": "*", "deny": ["a/y"]}}`, ada, tool("a", "y"), "-personas.q.deny[0]"},
		{`"personas": {"q": {"who": "*", "deny": ["a/y"]}, "p": {"who": "*"}}`, ada, tool("a", "y"), "-personas.q.deny[0]"},
		{`"personas": {"p": {"who": "*", "readOnly": true}}`, ada, tool("a", "y"), "-personas: no persona"},
		{`"personas": {"p": {"who": "*", "readOnly": true}}`, ada, catalogue.Item{Server: "a", Says: catalogue.Says{ReadOnly: true}}, "+personas.p"},
		{`"personas": {"p": {"who": "*"}}, "policy": [{"deny": ["a/y"]}]`, ada, tool("a", "y"), "-policy[0].deny[0]"},
		{`"personas": {"p": {"who": "*", "deny": ["*"]}}, "policy": [{"allow": ["a/y"]}]`, ada, tool("a", "y"), "-personas.p.deny[0]"},
		{`"personas": {"p": {"who": "*", "deny": ["*"]}}, "policy": []`, Who{Person: true}, tool("a", "y"), "+a person"},
	} {
		p := read(t, c.block)
		d := p.Decide(p.ClassOf(c.who), catalogue.Tools, c.item)
		_, place, found := strings.Cut(d.By, "bowline.")
		if !found {
			place = d.By
		}
		if got := map[bool]string{true: "+", false: "-"}[d.Allowed] + place; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %v and %v: %s, want %s", c.block, c.who, c.item, got, c.want)
		}
	}
	in := func(group string) Who { return Who{Identity: "token ada", At: group} }
	grouped := read(t, `"groups": {"x": {"servers": ["a"], "deny": ["a/z"]}}, "policy": [{"allow": ["a/*"], "deny": ["a/y"]}]`)
	for of, want := range map[[2]string]bool{{"", "y"}: false, {"", "x"}: true, {"x", "x"}: true, {"x", "y"}: false, {"x", "z"}: false, {"", "z"}: true, {"w", "x"}: false} {
		if got := grouped.Decide(grouped.ClassOf(in(of[0])), catalogue.Tools, tool("a", of[1])); got.Allowed != want {
			t.Errorf("%s in group %q: %v", of[1], of[0], got)
		}
	}
	both := read(t, `"groups": {"x": {"servers": ["a"]}}, "personas": {"p": {"who": "*", "deny": ["a/y"]}}`)
	for of, want := range map[[2]string]bool{{"", "y"}: false, {"", "x"}: true, {"x", "x"}: true, {"x", "y"}: false} {
		if got := both.Decide(both.ClassOf(in(of[0])), catalogue.Tools, tool("a", of[1])); got.Allowed != want {
			t.Errorf("with a persona, %s in group %q: %v", of[1], of[0], got)
		}
	}
	var none *Policy
	for _, c := range []struct {
		of   *Policy
		name string
		has  bool
	}{{grouped, "x", true}, {grouped, "y", false}, {grouped, "", false}, {none, "x", false}} {
		if c.of.HasGroup(c.name) != c.has {
			t.Errorf("it has the group %q: %v", c.name, !c.has)
		}
	}
	if !grouped.IsPrivate() || !read(t, `"personas": {}`).IsPrivate() || read(t, `"groups": {"x": {}}`).IsPrivate() {
		t.Error("a group makes lists private, or rules do not")
	}
	if read(t, `"maxName": 60`) != nil {
		t.Error("a file without a policy has one")
	}
	p := read(t, `"personas": {"p": {"who": "*", "readOnly": true}}`)
	if !p.Decide(p.ClassOf(ada), catalogue.Resources, tool("a", "x:/y")).Allowed {
		t.Error("resources are read only")
	}
}

// Of several personas the most counts, of each number, in whatever order, and that of everybody where none has one: a persona that says nothing lifts no limit.
//
// Guarantees: G-0100.6
func TestRates(t *testing.T) {
	everybody := mcpjson.Rate{PerMinute: 9, InFlight: 7}
	for _, c := range []struct {
		block string
		who   Who
		want  mcpjson.Rate
	}{
		{`"maxName": 60`, Who{Identity: "token ada"}, everybody},
		{`"policy": []`, Who{Identity: "token ada"}, everybody},
		{`"personas": {"p": {"who": "*"}}`, Who{Identity: "token ada"}, everybody},
		{`"personas": {"p": {"who": "*", "rate": {}}}`, Who{Identity: "token ada"}, everybody},
		{`"personas": {"p": {"who": "token bob", "rate": {"perMinute": 1}}}`, Who{Identity: "token ada"}, everybody},
		{`"policy": [{"allow": ["*"]}], "personas": {"p": {"who": "token ada", "rate": {"perMinute": 1}}}`, Who{Identity: "token ada"}, mcpjson.Rate{PerMinute: 1, InFlight: 7}},
		{`"personas": {"p": {"who": "*", "rate": {"perMinute": 60, "inFlight": 1}}, "q": {"who": "token ada", "rate": {"perMinute": 20, "inFlight": 8}}, "r": {"who": "*"}}`, Who{Identity: "token ada"}, mcpjson.Rate{PerMinute: 60, InFlight: 8}},
		{`"personas": {"p": {"who": "*", "rate": {"perMinute": 60, "inFlight": 1}}, "q": {"who": "token ada", "rate": {"perMinute": 20, "inFlight": 8}}}`, Who{Identity: "token bob"}, mcpjson.Rate{PerMinute: 60, InFlight: 1}},
		{`"personas": {"p": {"who": "group:far", "rate": {"inFlight": 1}}}`, Who{Claims: claims{"groups": {"far"}}}, mcpjson.Rate{PerMinute: 9, InFlight: 1}},
		{`"personas": {"p": {"who": "*", "rate": {"perMinute": 1}}}`, Who{Person: true}, everybody},
	} {
		if got := read(t, c.block).RateOf(c.who, everybody); got != c.want {
			t.Errorf("%s: %+v may ask %+v, want %+v", c.block, c.who, got, c.want)
		}
	}
	p := read(t, `"personas": {"less": {"who": "*", "rate": {"perMinute": 20, "inFlight": 8}}, "more": {"who": "*", "rate": {"perMinute": 60, "inFlight": 1}}}`)
	if perMinute, inFlight := p.RateBy(Who{Identity: "token ada"}, everybody); !strings.HasSuffix(perMinute, "personas.more.rate.perMinute") || !strings.HasSuffix(inFlight, "personas.less.rate.inFlight") {
		t.Errorf("the most is said to be by %s and %s", perMinute, inFlight)
	}
	p = read(t, `"personas": {"others": {"who": "token bob", "rate": {"perMinute": 9, "inFlight": 8}}, "own": {"who": "*", "rate": {"inFlight": 8}}}`)
	if perMinute, inFlight := p.RateBy(Who{Identity: "token ada"}, everybody); perMinute != "bowline.rate.perMinute" || !strings.HasSuffix(inFlight, "personas.own.rate.inFlight") {
		t.Errorf("with the same numbers for somebody else, it is said to be by %s and %s", perMinute, inFlight)
	}
}

// Each line is told apart from all others, up to the last one that a policy may have.
//
// Guarantees: G-0098.2
func TestClasses(t *testing.T) {
	var rules []string
	for i := range mcpjson.MaxGrants {
		rules = append(rules, fmt.Sprintf(`{"who": "token u%d", "allow": ["a/t%d"]}`, i, i))
	}
	p := read(t, `"policy": [`+strings.Join(rules, ",")+`]`)
	for _, i := range []int{0, 63, 64, 127, 255} {
		class := p.ClassOf(Who{Identity: fmt.Sprint("token u", i)})
		for _, j := range []int{0, 63, 64, 127, 255} {
			if got := p.Decide(class, catalogue.Tools, catalogue.Item{Server: "a", Own: fmt.Sprint("t", j)}); got.Allowed != (i == j) {
				t.Errorf("user %d and tool %d: %v", i, j, got)
			}
		}
	}
}

// What one of several patterns names is named, whichever it is.
func TestNames(t *testing.T) {
	several := []mcpjson.Pattern{{Text: "b/*"}, {Text: "a/read_*"}}
	for own, want := range map[string]bool{"read_it": true, "write_it": false} {
		if got := Names(several, catalogue.Item{Server: "a", Own: own}); got != want {
			t.Errorf("%s: %t", own, got)
		}
	}
}
