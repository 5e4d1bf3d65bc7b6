package mcpjson

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The block at the top is for a gateway. Paths start at the project's folder, and variables are replaced.
//
// Guarantees: G-0018.20
func TestTheBlockOfAGateway(t *testing.T) {
	bare := ""
	for text, want := range map[string]Gateway{
		`{"servers": {}}`:                {},
		`{"servers": {}, "bowline": {}}`: {},
		`{"servers": {}, "bowline": {"http": "${HOST}:8080", "maxName": 60, "prefix": "", "catalogue": "c.json", "roots": ["file:///r", "/s t", "u"],
			"admin": {"socket": "/run/s", "http": "[::1]:0"}, "start": "demand", "idleStop": "1s", "maxLife": "off"}}`: {
			HTTP: "localhost:8080", MaxName: 60, Prefix: &bare, Catalogue: filepath.FromSlash("/p/c.json"), Roots: []string{"file:///r", "file:///s%20t", "file:///p/u"},
			AdminSocket: "/run/s", AdminHTTP: "[::1]:0", Life: Life{"demand", time.Second, -1}},
		`{"servers": {}, "bowline": {"rate": {"perMinute": 600, "inFlight": 32}}}`: {Rate: Rate{600, 32}},
		`{"servers": {}, "bowline": {"url": "https://t.example/mcp", "auth": {"tokens": "t.json"}, "trustedProxies": ["10.0.0.0/8", "::1"]}}`: {
			URL: "https://t.example/mcp", Login: Login{Tokens: filepath.FromSlash("/p/t.json")}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		`{"servers": {}, "bowline": {"audit": {"file": "a.jsonl", "key": "k", "arguments": "none", "onFull": "block", "sync": true, "keep": 9}}}`: {
			Audit: Audit{File: filepath.FromSlash("/p/a.jsonl"), Key: filepath.FromSlash("/p/k"), NoArguments: true, Block: true, Sync: true, Keep: 9}},
		`{"servers": {}, "bowline": {"audit": {"file": "a", "show": [{"of": ["*"], "members": ["path", "in.line"]}]}}}`: {Audit: Audit{File: filepath.FromSlash("/p/a"),
			Show: []Shown{{[]Pattern{{"*", "/p/mcp.json:1:69: bowline.audit.show[0].of[0]"}}, []string{"path", "in.line"}}}}},
		`{"servers": {}, "bowline": {"auth": {"issuers": ["https://a.example"], "scopes": ["mcp"], "groups": "roles"}}}`: {Login: Login{Issuers: []Issuer{{URL: "https://a.example"}}, Scopes: []string{"mcp"}, Groups: "roles"}},
		`{"servers": {}, "bowline": {"auth": {"issuers": [{"url": "https://a.example", "introspect": {"clientId": "g", "clientSecret": "${HOST}", "url": "https://i.example/i"}}, {"url": "http://localhost:1"}], "name": "email", "dpop": "required"}}}`: {
			Login: Login{Issuers: []Issuer{{URL: "https://a.example", Introspect: &Introspect{"g", "localhost", "https://i.example/i"}}, {URL: "http://localhost:1"}}, Name: "email", DPoP: "required"}},
		`{"servers": {"s": {"disabled": true}, "@o/t": {}}, "bowline": {"policy": [{"who": ["group:x", "claim:a=b"], "allow": ["s/*", "@o/t/*"]}, {"deny": ["*"]}], "personas": {
			"p": {"who": "token a", "servers": ["s"], "readOnly": true, "allow": [], "deny": ["?/x"], "rate": {"perMinute": 60, "inFlight": 4}}}}}`: {Policy: Policy{
			Rules: []Grant{{Place: "/p/mcp.json:1:75: bowline.policy[0]", Who: []string{"group:x", "claim:a=b"}, Allow: []Pattern{{"s/*", "/p/mcp.json:1:119: bowline.policy[0].allow[0]"}, {"@o/t/*", "/p/mcp.json:1:126: bowline.policy[0].allow[1]"}}},
				{Place: "/p/mcp.json:1:138: bowline.policy[1]", Who: []string{"*"}, Deny: []Pattern{{"*", "/p/mcp.json:1:148: bowline.policy[1].deny[0]"}}}},
			Personas: []Grant{{Place: "/p/mcp.json:2:4: bowline.personas.p", Name: "p", Who: []string{"token a"}, Servers: []string{"s"}, ReadOnly: true, Allow: []Pattern{}, Deny: []Pattern{{"?/x", "/p/mcp.json:2:86: bowline.personas.p.deny[0]"}}, Rate: Rate{60, 4}}}}},
		`{"servers": {"s": {}}, "bowline": {"groups": {"g-1": {"servers": ["s"], "readOnly": true}, "h": {}}}}`: {Policy: Policy{
			Groups: []Grant{{Place: "/p/mcp.json:1:47: bowline.groups.g-1", Name: "g-1", Servers: []string{"s"}, ReadOnly: true}, {Place: "/p/mcp.json:1:92: bowline.groups.h", Name: "h"}}}},
		`{"servers": {}, "bowline": {"pins": "block"}}`:                                       {Pins: "block"},
		`{"servers": {}, "bowline": {"policy": [], "personas": {}}}`:                          {Policy: Policy{Rules: []Grant{}, Personas: []Grant{}}},
		`{"servers": {}, "bowline": {"url": null, "http": null}}`:                             {},
		`{"servers": {}, "bowline": {"roots": [], "http": ":80", "admin": {"socket": null}}}`: {HTTP: ":80", Roots: []string{}},
	} {
		f, err := parse("/p/mcp.json", text, variables{"HOST": "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := f.Gateway()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, *g, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// What an entry says to a gateway is read, and changes nothing for others: a server with other such settings is the same.
//
// Guarantees: G-0018.18, G-0018.20
func TestHosting(t *testing.T) {
	bare := ""
	same := read(t, `{}`)
	for written, want := range map[string]Hosting{
		`{}`: {},
		`{"prefix": "", "start": "demand", "idleStop": "5m", "maxLife": "24h", "roots": ["file:///a"]}`:     {Prefix: &bare, Life: Life{"demand", 5 * time.Minute, 24 * time.Hour}, Roots: []string{"file:///a"}},
		`{"tools": {"allow": ["read_*"], "deny": ["*secret*"]}, "prompts": {"allow": []}, "resources": {}}`: {Tools: Filter{[]string{"read_*"}, []string{"*secret*"}}, Prompts: Filter{Allow: []string{}}},
		`{"share": "client"}`: {Share: "client"},
		`{"start": "eager", "idleStop": "off", "prompts": {"deny": ["*"]}, "resources": {"allow": ["file:*"], "deny": []}}`: {Life: Life{Start: "eager", IdleStop: -1}, Prompts: Filter{Deny: []string{"*"}}, Resources: Filter{Allow: []string{"file:*"}}},
		`{"concurrency": 8, "toolRates": {"*": 60, "create": 5}}`:                                                           {Concurrency: 8, ToolRates: map[string]int{"*": 60, "create": 5}},
		`{"tools": {"rename": {"a": "b"}, "describe": {"a": "what it does"}}}`:                                              {Rename: map[string]string{"a": "b"}, Describe: map[string]string{"a": "what it does"}},
		`{"prefix": null, "start": null, "idleStop": null, "tools": {"rename": null}}`:                                      {},
	} {
		s := read(t, written)
		if diff := cmp.Diff(want, s.Hosting); diff != "" {
			t.Errorf("%s (-want +got):\n%s", written, diff)
		}
		if !s.Same(same) {
			t.Errorf("%s: it is another server", written)
		}
	}
	if read(t, `{"start": "demand", "retries": 1}`).Same(same) {
		t.Error("with retries it is the same server")
	}
	// A server of which a cluster has one is reached in another way.
	if one := read(t, `{"instances": "one"}`); one.Hosting.Instances != "one" || one.Same(same) || !one.Same(read(t, `{"instances": "one", "share": "all"}`)) {
		t.Errorf("%+v", one.Hosting)
	}
}

func read(t *testing.T, block string) *Server {
	t.Helper()
	s, err := mustParse(t, server(`"command": "x", "bowline": `+block), nil).Server("a")
	if err != nil {
		t.Fatalf("%s: %v", block, err)
	}
	return s
}

// A slip in a block of the gateway is a mistake, with its line and column, and Check finds it, too. No message shows the
// value of a variable.
//
// Guarantees: G-0018.3, G-0018.4, G-0018.20
func TestMistakesOfAGateway(t *testing.T) {
	top := func(block string) string { return "{\"servers\": {}, \"bowline\":\n" + block + "}" }
	const keys = "http, admin, maxName, prefix, catalogue, roots, start, idleStop, maxLife, rate, url, auth, trustedProxies, audit, policy, personas, groups, pins"
	for _, c := range []struct{ text, want string }{
		{top(`[]`), "m:2:1: bowline: expected an object, got an array"},
		{top(`{"htpp": ":1"}`), "m:2:2: bowline.htpp: unknown: there are only " + keys + " here"},
		{top(`{"http": ":1", "http": ":2"}`), "m:2:16: bowline.http: the name is repeated"},
		{top(`{"http": "8080"}`), `m:2:10: bowline.http: "8080" is no address with a port, such as 127.0.0.1:8080`},
		{top(`{"http": "h:65536"}`), `m:2:10: bowline.http: "h:65536" is no address with a port, such as 127.0.0.1:8080`},
		{top(`{"http": "h:${SECRET}"}`), `m:2:10: bowline.http: "h:${SECRET}" is no address with a port, such as 127.0.0.1:8080`},
		{top(`{"admin": {"https": ":1"}}`), "m:2:12: bowline.admin.https: unknown: there are only socket, http here"},
		{top(`{"admin": {"http": 1}}`), "m:2:20: bowline.admin.http: expected a string, got a number"},
		{top(`{"maxName": 31}`), "m:2:13: bowline.maxName: expected a whole number from 32 to 128"},
		{top(`{"maxName": 129}`), "m:2:13: bowline.maxName: expected a whole number from 32 to 128"},
		{top(`{"prefix": "x"}`), `m:2:12: bowline.prefix: only "" is possible here, for bare names: a prefix belongs to one server`},
		{top(`{"roots": ["/a", "http://${SECRET}"]}`), "m:2:11: bowline.roots: number 2 is neither a path nor a URI that begins with file://"},
		{top(`{"roots": "/a"}`), "m:2:11: bowline.roots: expected an array of strings, got a string"},
		{server(`"command": "x", "bowline": {"start": "lazy"}`), "m:2:44: servers.a.bowline.start: expected one of eager, demand"},
		{server(`"command": "x", "bowline": {"instances": "two"}`), "m:2:48: servers.a.bowline.instances: expected one of each, one"},
		{server(`"command": "x", "bowline": {"share": "none"}`), "m:2:44: servers.a.bowline.share: expected one of all, user, client"},
		{server(`"url": "http://h", "bowline": {"login": "me"}`), "m:2:47: servers.a.bowline.login: expected one of user"},
		{server(`"command": "x", "bowline": {"login": "user"}`), "m:2:44: servers.a.bowline.login: only a server that is reached over HTTP has logins"},
		{server(`"url": "http://h", "bowline": {"login": "user", "share": "all"}`), "m:2:47: servers.a.bowline.login: users with logins of their own share no connection: remove share, or make it user or client"},
		{server(`"url": "http://h", "bowline": {"login": "user", "auth": {"clientId": "c", "clientSecret": "s", "grant": "client_credentials"}}`), "m:2:47: servers.a.bowline.login: users log in with a browser: remove grant from auth, or make it authorization_code"},
		{server(`"type": "sse", "url": "http://h", "headers": {"authorization": "x"}, "bowline": {"login": "user"}`), "m:2:97: servers.a.bowline.login: all users have the header Authorization of this entry: remove one of the two"},
		{server(`"url": "http://h", "headers": {"authorization": "x"}, "bowline": {"login": "user"}`), "m:2:82: servers.a.bowline.login: all users have the header Authorization of this entry: remove one of the two"},
		{server(`"url": "http://h", "bowline": {"login": {}}`), "m:2:47: servers.a.bowline.login: exchange has no clientId: the gateway must be registered at the issuer"},
		{server(`"url": "http://h", "bowline": {"login": {"exchange": {"clientId": "c"}}}`), "m:2:47: servers.a.bowline.login: exchange has no issuer, which is a URL of https, with a host; http is for loopback hosts only"},
		{server(`"url": "http://h", "bowline": {"login": {"exchange": {"clientId": "c", "issuer": "http://as.example.com"}}}`), "m:2:47: servers.a.bowline.login: exchange has no issuer, which is a URL of https, with a host; http is for loopback hosts only"},
		{server(`"url": "http://h", "bowline": {"login": {"exchange": {"client": "c"}}}`), "m:2:47: servers.a.bowline.login: exchange has no clientId: the gateway must be registered at the issuer\nm:2:61: servers.a.bowline.login.exchange.client: unknown: there are only issuer, clientId, clientSecret, audience, scopes here"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {}}}`), "m:2:47: servers.a.bowline.login: idjag has no clientId: the gateway must be registered at the issuer"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {"clientId": "c"}}}`), "m:2:47: servers.a.bowline.login: idjag has no issuer, which is a URL of https, with a host; http is for loopback hosts only"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {"issuer": "https://as", "clientId": "c"}}}`), "m:2:47: servers.a.bowline.login: provider has no clientId: the gateway must be registered there, too"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {"issuer": "https://as", "clientId": "c", "provider": {"clientId": "c", "tokenEndpoint": "http://idp.example.com/token"}}}}`), "m:2:47: servers.a.bowline.login: provider has no tokenEndpoint, which is a URL of https, with a host; http is for loopback hosts only"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {"issuer": "https://as", "clientId": "c", "provider": {"clientId": "c", "tokenEndpoint": "https://idp", "subject": "saml2"}}}}`), "m:2:172: servers.a.bowline.login.idjag.provider.subject: expected one of access_token, id_token"},
		{server(`"url": "http://h", "bowline": {"login": {"idjag": {"issuer": "https://as", "clientId": "c", "provider": null}}}`), "m:2:47: servers.a.bowline.login: provider has no clientId: the gateway must be registered there, too\nm:2:111: servers.a.bowline.login.idjag.provider: null could mean everything or nothing: write a value, or remove the key"},
		{server(`"url": "http://h", "bowline": {"login": {"exchange": {}, "idjag": {"issuer": "https://as", "clientId": "c", "provider": {"clientId": "c", "tokenEndpoint": "https://idp"}}}}`), "m:2:47: servers.a.bowline.login: there is an exchange as well as an idjag: remove one of the two"},
		{server(`"url": "http://h", "bowline": {"login": {"exchange": {"issuer": "https://as", "clientId": "c", "provider": {}}}}`), "m:2:102: servers.a.bowline.login.exchange.provider: unknown: there are only issuer, clientId, clientSecret, audience, scopes here"},
		{server(`"command": "x", "bowline": {"start": ""}`), "m:2:44: servers.a.bowline.start: expected one of eager, demand"},
		{server(`"command": "x", "bowline": {"idleStop": "never"}`), `m:2:47: servers.a.bowline.idleStop: "never" is not a duration above zero, such as 30s or 2m`},
		{server(`"command": "x", "bowline": {"maxLife": "999ms"}`), "m:2:46: servers.a.bowline.maxLife: 999ms is below 1s"},
		{top(`{"start": "lazy"}`), "m:2:11: bowline.start: expected one of eager, demand"},
		{server(`"command": "x", "bowline": {"tools": {"alow": []}}`), "m:2:45: servers.a.bowline.tools.alow: unknown: there are only allow, deny, rename, describe here"},
		{server(`"command": "x", "bowline": {"prompts": {"rename": {}}}`), "m:2:47: servers.a.bowline.prompts.rename: unknown: there are only allow, deny here"},
		{server(`"command": "x", "bowline": {"tools": {"rename": {"a": ""}}}`), "m:2:61: servers.a.bowline.tools.rename.a: it is empty"},
		{server(`"command": "x", "bowline": {"tools": {"describe": {"a": 1}}}`), "m:2:63: servers.a.bowline.tools.describe.a: expected a string, got a number"},
		{top(`{"audit": {"file": "a", "show": [{"of": ["*"]}]}}`), "m:2:34: bowline.audit.show[0]: it needs tools in of, and 1 to 16 names in members"},
		{top(`{"audit": {"file": "a", "show": [{"members": ["a"]}]}}`), "m:2:34: bowline.audit.show[0]: it needs tools in of, and 1 to 16 names in members"},
		{top(`{"audit": {"file": "a", "show": [{"of": ["*"], "members": ["a", "auth.API_Key"]}]}}`), "m:2:59: bowline.audit.show[0].members: one of these is the name of a secret, which no record may show"},
		{top(`{"audit": {"file": "a", "show": [{"of": ["x/*"], "members": ["a"]}]}}`), `m:2:42: bowline.audit.show[0].of[0]: the file has no server "x": it has none`},
		{top(`{"audit": {"sync": true}}`), "m:2:11: bowline.audit: it names no file"},
		{top(`{"audit": {"file": "a", "onFull": "wait"}}`), "m:2:35: bowline.audit.onFull: expected drop or block"},
		{top(`{"auth": {}}`), "m:2:10: bowline.auth: it names neither tokens nor issuers: whoever reaches the address could call every tool"},
		{top(`{"auth": {"tokens": "t", "issuers": ["https://${SECRET}"]}}`), "m:2:37: bowline.auth.issuers: there is a file of tokens as well: choose one"},
		{top(`{"auth": {"tokens": "t", "scopes": ["s"]}}`), "m:2:36: bowline.auth.scopes: only tokens of issuers have that: remove it, or write issuers in place of tokens"},
		{top(`{"auth": {"tokens": "t", "name": "email", "dpop": "off"}}`), "m:2:34: bowline.auth.name: only tokens of issuers have that: remove it, or write issuers in place of tokens\nm:2:51: bowline.auth.dpop: only tokens of issuers have that: remove it, or write issuers in place of tokens"},
		{top(`{"auth": {"issuers": "https://a"}}`), "m:2:10: bowline.auth: it names neither tokens nor issuers: whoever reaches the address could call every tool\nm:2:22: bowline.auth.issuers: expected an array of URLs, or of objects with a url, got a string"},
		{top(`{"auth": {"issuers": ["as.${SECRET}"]}}`), "m:2:23: bowline.auth.issuers[0]: " + issuerForm},
		{top(`{"auth": {"issuers": [7]}}`), "m:2:23: bowline.auth.issuers[0]: expected an object, got a number\nm:2:23: bowline.auth.issuers[0]: " + issuerForm},
		{top(`{"auth": {"issuers": [{"url": "http://as.test"}]}}`), "m:2:31: bowline.auth.issuers[0].url: " + issuerForm},
		{top(`{"auth": {"issuers": [{"uri": "https://a"}]}}`), "m:2:23: bowline.auth.issuers[0]: " + issuerForm + "\nm:2:24: bowline.auth.issuers[0].uri: unknown: there are only url, introspect here"},
		{top(`{"auth": {"issuers": ["https://a", {"url": "https://a"}]}}`), "m:2:44: bowline.auth.issuers[1].url: the issuer is given twice: remove one of the two"},
		{top(`{"auth": {"issuers": [{"url": "https://a", "introspect": {"clientId": "c"}}]}}`), "m:2:58: bowline.auth.issuers[0].introspect: a clientId and a clientSecret are needed: the gateway must be registered at the issuer, which else answers everybody who has found a token"},
		{top(`{"auth": {"issuers": [{"url": "https://a", "introspect": {"clientId": "c", "clientSecret": "s", "url": "/i"}}]}}`), "m:2:104: bowline.auth.issuers[0].introspect.url: " + issuerForm},
		{top(`{"auth": {"issuers": [{"url": "https://a", "introspect": {"clientId": "c", "clientSecret": "s"}}, {"url": "https://b", "introspect": {"clientId": "c", "clientSecret": "s"}}]}}`), "m:2:134: bowline.auth.issuers[1].introspect: another issuer is asked about tokens already, and each would see those of the other: only one can be"},
		{top(`{"auth": {"issuers": [{"url": "https://a", "introspect": {"clientId": "c", "clientSecret": "s"}}, {"url": "https://x"}, {"url": "https://b", "introspect": {"clientId": "c", "clientSecret": "s"}}]}}`), "m:2:156: bowline.auth.issuers[2].introspect: another issuer is asked about tokens already, and each would see those of the other: only one can be"},
		{top(`{"auth": {"issuers": [{"url": "https://a", "introspect": null}]}}`), "m:2:58: bowline.auth.issuers[0].introspect: null could mean everything or nothing: write a value, or remove the key"},
		{top(`{"auth": {"issuers": ["https://a"], "dpop": true}}`), "m:2:45: bowline.auth.dpop: expected a string, got a boolean\nm:2:45: bowline.auth.dpop: expected one of off, allowed, required"},
		{top(`{"trustedProxies": ["::1", "proxy"]}`), "m:2:20: bowline.trustedProxies: number 2 is neither an address nor a prefix such as 10.0.0.0/8"},
		{top(`{"auth": {"tokens": "t", "groups": "g"}}`), "m:2:36: bowline.auth.groups: only tokens of issuers have that: remove it, or write issuers in place of tokens"},
		{top(`{"policy": {}}`), "m:2:12: bowline.policy: expected an array of rules, got an object"},
		{top(`{"policy": [{"who": "*"}]}`), "m:2:13: bowline.policy[0]: it neither allows nor denies anything"},
		{top(`{"policy": ["*"]}`), "m:2:13: bowline.policy[0]: expected an object, got a string\nm:2:13: bowline.policy[0]: it neither allows nor denies anything"},
		{top(`{"policy": [{"servers": []}]}`), "m:2:13: bowline.policy[0]: it neither allows nor denies anything\nm:2:14: bowline.policy[0].servers: unknown: there are only who, allow, deny here"},
		{top(`{"policy": [{"who": 1, "allow": ["*"]}]}`), "m:2:21: bowline.policy[0].who: expected a string, or an array of strings, got a number"},
		{top(`{"policy": [{"who": ["claim:a"], "allow": ["*"]}]}`), "m:2:22: bowline.policy[0].who[0]: expected *, group:NAME, claim:NAME=VALUE, or an identity such as token ada"},
		{top(`{"policy": [{"who": "", "allow": ["*"]}]}`), "m:2:21: bowline.policy[0].who: expected *, group:NAME, claim:NAME=VALUE, or an identity such as token ada"},
		{top(`{"policy": [{"allow": "*"}]}`), "m:2:23: bowline.policy[0].allow: expected an array of strings, got a string"},
		{top(`{"policy": [{"deny": ["*", "read"]}]}`), "m:2:28: bowline.policy[0].deny[1]: expected a server, a slash and a name, such as files/read_*, or *"},
		{strings.Replace(server(`"command": "x"`), `{"servers"`, `{"bowline": {"policy": [{"deny": ["aa/*"]}]}, "servers"`, 1), `m:1:35: bowline.policy[0].deny[0]: the file has no server "aa": did you mean a? It has: a`},
		{top(`{"groups": {"a/b": {}, "search": {"who": "*"}}}`), "m:2:13: bowline.groups[\"a/b\"]: the name of a group is part of a URL: only letters, digits, - and _ are possible\nm:2:24: bowline.groups.search: the gateway has an endpoint of this name already\nm:2:35: bowline.groups.search.who: unknown: there are only servers, allow, deny, readOnly here"},
		{top(`{"pins": "on"}`), "m:2:10: bowline.pins: expected one of warn, block, off"},
		{top(`{"personas": {"p": {}}}`), `m:2:15: bowline.personas.p: who has it? For everybody, write "who": "*"`},
		{top(`{"personas": {"p": {"who": "*", "servers": ["${SECRET}"]}}}`), "m:2:45: bowline.personas.p.servers[0]: the file has no server \"${SECRET}\": it has none"},
		{top(`{"personas": {"p": {"who": "*", "rate": {"perHour": 1}}}}`), "m:2:42: bowline.personas.p.rate.perHour: unknown: there are only perMinute, inFlight here"},
		{top(`{"personas": {"p": {"who": "*", "rate": {"perMinute": 0}}}}`), "m:2:55: bowline.personas.p.rate.perMinute: expected a whole number from 1 to 1000000"},
		{top(`{"personas": {"p": {"who": "*", "rate": 60}}}`), "m:2:41: bowline.personas.p.rate: expected an object, got a number"},
		{top(`{"groups": {"g": {"rate": {}}}}`), "m:2:19: bowline.groups.g.rate: unknown: there are only servers, allow, deny, readOnly here"},
		{top(`{"rate": {"perHour": 1}}`), "m:2:11: bowline.rate.perHour: unknown: there are only perMinute, inFlight here"},
		{top(`{"rate": {"inFlight": 0}}`), "m:2:23: bowline.rate.inFlight: expected a whole number from 1 to 1000000"},
		{server(`"command": "x", "bowline": {"toolRates": {"a": 1.5}}`), "m:2:54: servers.a.bowline.toolRates.a: expected a whole number from 1 to 1000000"},
		{server(`"command": "x", "bowline": {"concurrency": -1}`), "m:2:50: servers.a.bowline.concurrency: expected a whole number from 1 to 1000000"},
		{server(`"command": "x", "bowline": {"tools": ["x"]}`), "m:2:44: servers.a.bowline.tools: expected an object, got an array"},
	} {
		if got := mistakes(t, c.text, variables{"SECRET": "s3cret"}); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

// Null opens nothing: where it could lift a limit, it is a mistake that says what to write.
//
// Guarantees: G-0018.23
func TestNullLiftsNoLimit(t *testing.T) {
	top := func(block string) string {
		return "{\"servers\": {\"s\": {\"command\": \"x\"}}, \"bowline\":\n" + block + "}"
	}
	const null = ": null could mean everything or nothing: write "
	for _, c := range []struct{ text, place, instead string }{
		{top(`null`), "2:1: bowline", ""},
		{top(`{"policy": null}`), "2:12: bowline.policy", "an array, which may be []"},
		{top(`{"personas": null}`), "2:14: bowline.personas", "a value"},
		{top(`{"policy": [{"who": null, "allow": ["*"]}]}`), "2:21: bowline.policy[0].who", `"*" for everybody, or [] for nobody`},
		{top(`{"policy": [{"allow": ["*"], "deny": null}]}`), "2:38: bowline.policy[0].deny", "an array, which may be []"},
		{top(`{"personas": {"p": {"who": "*", "servers": null}}}`), "2:44: bowline.personas.p.servers", "an array, which may be []"},
		{top(`{"personas": {"p": {"who": "*", "allow": null}}}`), "2:42: bowline.personas.p.allow", "an array, which may be []"},
		{top(`{"personas": {"p": {"who": "*", "readOnly": null}}}`), "2:45: bowline.personas.p.readOnly", "a value"},
		{top(`{"personas": {"p": {"who": "*", "rate": null}}}`), "2:41: bowline.personas.p.rate", "a value"},
		{top(`{"groups": {"g": {"deny": null}}}`), "2:27: bowline.groups.g.deny", "an array, which may be []"},
		{top(`{"auth": null}`), "2:10: bowline.auth", "a value"},
		{top(`{"auth": {"issuers": ["https://i"], "scopes": null}}`), "2:47: bowline.auth.scopes", "an array, which may be []"},
		{top(`{"audit": {"file": "a", "sync": null}}`), "2:33: bowline.audit.sync", "a value"},
		{top(`{"pins": null}`), "2:10: bowline.pins", "a value"},
		{top(`{"rate": {"perMinute": null}}`), "2:24: bowline.rate.perMinute", "a value"},
		{server(`"url": "http://h", "bowline": null`), "2:37: servers.a.bowline", "a value"},
		{server(`"url": "http://h", "bowline": {"login": null}`), "2:47: servers.a.bowline.login", "a value"},
		{server(`"url": "http://h", "bowline": {"share": null}`), "2:47: servers.a.bowline.share", "a value"},
		{server(`"url": "http://h", "bowline": {"tools": {"deny": null}}`), "2:56: servers.a.bowline.tools.deny", "an array, which may be []"},
		{server(`"url": "http://h", "bowline": {"resources": null}`), "2:51: servers.a.bowline.resources", "a value"},
		{server(`"url": "http://h", "bowline": {"concurrency": null}`), "2:53: servers.a.bowline.concurrency", "a value"},
	} {
		want := "m:" + c.place + null + c.instead + ", or remove the key"
		if c.instead == "" {
			want = "m:" + c.place + ": expected an object, got null"
		}
		if got := mistakes(t, c.text, nil); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", c.text, got, want)
		}
	}
}

// A text that can mean nobody is a mistake, since a rule that denies something to nobody denies nothing. What may be an identity of a login of a program's own is none.
//
// Guarantees: G-0098.17
func TestNobody(t *testing.T) {
	const (
		tokens  = `"auth": {"tokens": "t"}, `
		issuers = `"auth": {"issuers": ["https://i"]}, `
	)
	for _, c := range []struct{ auth, who, want string }{
		{"", "ada", "no user is called that: write token NAME, group:NAME, or an issuer, a space and a subject"},
		{"", "token", "no user is called that: write token NAME, group:NAME, or an issuer, a space and a subject"},
		{"", "groups:dev", "no user is called that: write token NAME, group:NAME, or an issuer, a space and a subject"},
		{"", "https://i", "an issuer alone is no user: add a space and the subject, or a space and * for all of its users"},
		{"", "token ada ", "it begins or ends with a space, as no user does"},
		{"", " *", "it begins or ends with a space, as no user does"},
		{"", "Token ada", "write token in lower case, or nobody is meant"},
		{"", "HOST *", "write host in lower case, or nobody is meant"},
		{"", "Group:dev", "write group: in lower case, or nobody is meant"},
		{"", "group:", "it has no value: write * in its place for any"},
		{"", "claim:mail=", "it has no value: write * in its place for any"},
		{"", "token  ada", "no token has such a name: there are only letters, digits and . _ @ - in them"},
		{"", "token ada/x", "no token has such a name: there are only letters, digits and . _ @ - in them"},
		{tokens, "group:dev", "users of the file of tokens have no groups and no claims: name them, such as token ada"},
		{issuers, "https://i/ x", "auth.issuers does not have this issuer: write it exactly as there"},
		{issuers, "https://i x", ""}, {issuers, "https://* x", ""}, {issuers, "group:dev", ""}, {issuers, "claim:a=b", ""}, {issuers, "claim:a=*", ""},
		{"", "*", ""}, {"", "?*", ""}, {"", "ad*", ""}, {"", "token a.d-a_1@x", ""}, {"", "token *", ""}, {"", "host 1", ""}, {"", "ldap ada lovelace", ""}, {"", "https://i *", ""}, {"", "https://i x y", ""},
	} {
		text := "{\"servers\": {}, \"bowline\": {" + c.auth + "\"policy\": [{\"deny\": [\"*\"], \n\"who\": \"" + c.who + "\"}]}}"
		if c.want == "" {
			if err := mustParse(t, text, nil).Check(); err != nil {
				t.Errorf("%q: %v", c.who, err)
			}
		} else if got, want := mistakes(t, text, nil), "m:2:8: bowline.policy[0].who: "+c.want; got != want {
			t.Errorf("%q: %s, want %s", c.who, got, want)
		}
	}
	if got := mistakes(t, strings.Replace(server(`"command": "x"`), `{"servers"`, `{"bowline": {"policy": [{"deny": ["a/"]}]}, "servers"`, 1), nil); got != "m:1:35: bowline.policy[0].deny[0]: it names nothing: add * for everything that the server has, or a name" {
		t.Errorf("a pattern without a name: %s", got)
	}
}

// What only the program finds wrong has the place of the server's name.
//
// Guarantees: G-0018.20
func TestReject(t *testing.T) {
	f := mustParse(t, "{\"servers\": {\n\"b\": {\"command\": \"x\"},\n \"a\": {\"command\": \"x\"}, \"off\": {\"disabled\": true}}}", nil)
	f.Reject(map[string]string{"a": "is wrong", "b": "is odd", "off": "is off", "none": "is not there"})
	var wrong *Error
	if err := f.Check(); !errors.As(err, &wrong) || !strings.HasSuffix(err.Error(), ":2:1: servers.b: is odd\nmcp.json:3:2: servers.a: is wrong") {
		t.Errorf("got %v", err)
	}
	if _, err := f.Server("a"); !errors.As(err, &wrong) || !strings.HasSuffix(err.Error(), ":3:2: servers.a: is wrong") {
		t.Errorf("the server: %v", err)
	}
	f.Reject(map[string]string{"none": "is not there"})
	if err := f.Check(); err != nil {
		t.Errorf("nothing is wrong any more: %v", err)
	}
}

// A record may show 16 members, and no more.
func TestHowManyMembersARecordShows(t *testing.T) {
	for n, fits := range map[int]bool{16: true, 17: false} {
		members := strings.TrimSuffix(strings.Repeat(`"m", `, n), ", ")
		f, err := Parse("m", []byte(`{"servers": {}, "bowline": {"audit": {"file": "a", "show": [{"of": ["*"], "members": [`+members+`]}]}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Gateway(); (err == nil) != fits {
			t.Errorf("%d members: %v", n, err)
		}
	}
}

// Relative roots start at the folder of the project, also if the file is in the folder of an editor.
func TestRootsOfAFileInTheFolderOfAnEditor(t *testing.T) {
	f, err := Parse(filepath.FromSlash("/p/.vscode/mcp.json"), []byte(`{"servers": {}, "bowline": {"roots": ["u"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if g, err := f.Gateway(); err != nil || len(g.Roots) != 1 || !strings.HasSuffix(g.Roots[0], "/p/u") {
		t.Errorf("got %+v, %v, want the root u in /p", g, err)
	}
}

// A server that is not enabled does not run, whatever else its entry says.
func TestAServerThatIsNotEnabled(t *testing.T) {
	f, err := Parse("m", []byte(`{"servers": {"a": {"command": "x", "enabled": false, "disabled": false}, "b": {"command": "x", "enabled": true, "disabled": true}, "c": {"command": "x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Names(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("the servers %q run, want c alone", got)
	}
}
