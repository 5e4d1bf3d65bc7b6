package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"pgregory.net/rapid"
)

// claims are those of a login.
type claims map[string][]string

func (c claims) Claim(name string) []string { return c[name] }

// withPolicy returns a fleet of the servers a and b, with a block bowline.
func withPolicy(t *testing.T, version, block string, o gateway.Options) *fleet {
	t.Helper()
	all, entries := two(), []string{}
	for _, name := range keys(all) {
		entries = append(entries, fmt.Sprintf(`%q:{"command":%q}`, name, "/bin/"+name))
	}
	return newFleetFor(t, version, all, o, load(t, `{"mcpServers":{`+strings.Join(entries, ",")+`},"bowline":`+block+`}`))
}

// everything returns all that a client is shown.
func everything(t testing.TB, session *client.Session) (all []string) {
	t.Helper()
	ctx := t.Context()
	collect := func(name string, err error) {
		if all = append(all, name); err != nil {
			t.Fatal(err)
		}
	}
	for tool, err := range session.Tools(ctx) {
		collect(tool.Name, err)
	}
	for prompt, err := range session.Prompts(ctx) {
		collect(prompt.Name, err)
	}
	for resource, err := range session.Resources(ctx) {
		collect(resource.URI, err)
	}
	for template, err := range session.ResourceTemplates(ctx) {
		collect(template.URITemplate, err)
	}
	return all
}

// ways are all requests that reach something of a server, by what they need to be shown.
func ways(name string) map[string]func(context.Context, *client.Session) error {
	return map[string]func(context.Context, *client.Session) error{
		name + "__who": func(ctx context.Context, s *client.Session) error {
			return second(s.CallTool(ctx, &protocol.CallToolParams{Name: name + "__who"}))
		},
		name + "__greet": func(ctx context.Context, s *client.Session) error {
			return second(s.GetPrompt(ctx, &protocol.GetPromptParams{Name: name + "__greet", Arguments: map[string]string{"Name": "x"}}))
		},
		name + "__greet completion": func(ctx context.Context, s *client.Session) error {
			return second(s.Complete(ctx, &protocol.CompleteParams{Ref: protocol.CompleteReference{Name: name + "__greet"}, Argument: protocol.CompleteArgument{Name: "Name"}}))
		},
		name + ":/one": func(ctx context.Context, s *client.Session) error {
			return second(s.ReadResource(ctx, &protocol.ReadResourceParams{URI: name + ":/one"}))
		},
		name + ":/one subscription": func(ctx context.Context, s *client.Session) error {
			return s.Subscribe(ctx, &protocol.SubscribeParams{URI: name + ":/one"})
		},
		name + ":/all/{N} read": func(ctx context.Context, s *client.Session) error {
			return second(s.ReadResource(ctx, &protocol.ReadResourceParams{URI: name + ":/all/7"}))
		},
		name + ":/all/{N} completion": func(ctx context.Context, s *client.Session) error {
			return second(s.Complete(ctx, &protocol.CompleteParams{Ref: protocol.CompleteReference{Type: protocol.ReferenceResource, URI: name + ":/all/{N}"}, Argument: protocol.CompleteArgument{Name: "N"}}))
		},
	}
}

// needs returns what of a list a way needs.
func needs(way string) string {
	name, _, _ := strings.Cut(way, " ")
	return name
}

// What a user may do is what is in the user's lists, in each era: everything else is refused as what does not exist, and no server hears of it.
//
// Guarantees: G-0098.1, G-0098.2
func TestAPolicyShowsWhatItAllows(t *testing.T) {
	const block = `{"policy": [
		{"who": "token ada", "allow": ["a/*"]},
		{"who": "group:ops", "allow": ["b/who", "b/b:*"], "deny": ["*/greet"]},
		{"who": "claim:mail=*@b.example", "allow": ["b/*"]}, {"deny": ["*"]}]}`
	for _, front := range []string{protocol.Version20241105, protocol.LatestLegacy, protocol.Latest} {
		for who, want := range map[string]string{
			"token ada": "a__who a__greet a:/one a:/all/{N}",
			"token ops": "b__who b:/one b:/all/{N}",
			"token bob": "b__who b__greet b:/one b:/all/{N}",
			"":          "",
		} {
			t.Run(front+who, func(t *testing.T) {
				f := withPolicy(t, protocol.Latest, block, gateway.Options{})
				f.identity = who
				switch who {
				case "token ops":
					f.principal = claims{"groups": {"dev", "ops"}}
				case "token bob":
					f.principal = claims{"mail": {"bob@b.example"}}
				}
				checkWays(t, f.client(front, client.Options{}), strings.Fields(want))
			})
		}
	}
}

// checkWays tries every way.
func checkWays(t testing.TB, session *client.Session, shown []string) {
	t.Helper()
	if all := everything(t, session); !slices.Equal(all, shown) {
		t.Errorf("it sees %q, want %q", all, shown)
	}
	for _, name := range []string{"a", "b"} {
		for way, do := range ways(name) {
			if strings.HasSuffix(way, "completion") && protocol.IsLegacy(session.Server().ProtocolVersion) && session.Server().ProtocolVersion < protocol.LatestLegacy && strings.Contains(way, "{N}") {
				continue
			}
			err := do(t.Context(), session)
			if slices.Contains(shown, needs(way)) {
				if err != nil && !strings.Contains(way, "{N} completion") { // the server has none
					t.Errorf("%s: %v", way, err)
				}
			} else if err != nil && strings.Contains(err.Error(), "does not grant") { // a modern client is told what it may subscribe to
			} else if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams && fault.Code != protocol.CodeResourceNotFound {
				t.Errorf("%s: %v", way, err)
			}
		}
	}
}

// Who has personas may do what one of them allows and none denies, and who has none nothing at all; the rules must allow it as well.
//
// Guarantees: G-0098.3
func TestPersonas(t *testing.T) {
	const block = `{"personas": {
		"reader": {"who": ["token ada", "token bob"], "servers": ["a"], "allow": ["*/a:*"]},
		"caller": {"who": "token ada", "servers": ["a", "b"], "allow": ["*/who"], "deny": ["b/*"]},
		"looker": {"who": "token eve", "readOnly": true}},
		"policy": [{"who": "token bob", "deny": ["a/a:/all/*"]}, {"allow": ["*"]}]}`
	for who, want := range map[string]string{"token ada": "a__who a:/one a:/all/{N}", "token bob": "a:/one", "token eve": "a__greet b__greet a:/one b:/one a:/all/{N} b:/all/{N}", "token sue": ""} {
		f := withPolicy(t, protocol.LatestLegacy, block, gateway.Options{})
		f.identity = who
		checkWays(t, f.client(protocol.Latest, client.Options{}), strings.Fields(want))
	}
}

// Whatever the policy is, and whatever a client asks for in which order, no server gets a request about something that the client's list does not show, and
// each one that it shows.
//
// Guarantees: G-0098.1
func TestNothingHiddenIsReached(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.SampledFrom([]string{`"*"`, `"a/*"`, `"b/*"`, `"*/who"`, `"a/greet"`, `"b/b:/one"`, `"*/*:/all/*"`, `"?/?:/*"`, `"b/b:/all/{N}"`})
		patterns := rapid.Custom(func(t *rapid.T) string {
			return "[" + strings.Join(rapid.SliceOfN(pattern, 0, 3).Draw(t, "patterns"), ",") + "]"
		})
		var rules []string
		for range rapid.IntRange(0, 4).Draw(rt, "rules") {
			rules = append(rules, fmt.Sprintf(`{"allow":%s,"deny":%s}`, patterns.Draw(rt, "allow"), patterns.Draw(rt, "deny")))
		}
		block := `{"policy":[` + strings.Join(rules, ",") + `]`
		if rapid.Bool().Draw(rt, "personas") {
			block += fmt.Sprintf(`,"personas":{"p":{"who":"*","deny":%s},"q":{"who":"token ada","allow":%s}}`, patterns.Draw(rt, "deny"), patterns.Draw(rt, "allow"))
		}
		f := withPolicy(t, protocol.Latest, block+"}", gateway.Options{})
		session := f.client(rapid.SampledFrom([]string{protocol.LatestLegacy, protocol.Latest}).Draw(rt, "era"), client.Options{})
		shown := everything(t, session)
		try := func(name, way string) {
			before := f.passed(name)
			_ = ways(name)[way](t.Context(), session)
			switch reached := f.passed(name) > before; {
			case reached && !slices.Contains(shown, needs(way)):
				rt.Fatalf("%s reached its server with %s, which shows %q", way, block, shown)
			case !reached && slices.Contains(shown, needs(way)) && !strings.HasSuffix(way, "subscription") && way != name+":/all/{N} read":
				rt.Fatalf("%s did not reach its server with %s, which shows %q", way, block, shown)
			}
		}
		for range 8 {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "server")
			try(name, rapid.SampledFrom(slices.DeleteFunc(sortedKeys(ways(name)), func(way string) bool { return strings.HasSuffix(way, "subscription") })).Draw(rt, "way"))
		}
		for _, name := range []string{"a", "b"} { // at the end: a modern client asks again for what it has, after it was refused something, and nobody waits for that
			try(name, name+":/one subscription")
		}
	})
}

func sortedKeys[V any](m map[string]V) (all []string) {
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

// passed returns how many requests a server has got.
func (f *fleet) passed(name string) uint64 {
	s, _ := f.Report().Server(name)
	return s.Answered + s.Unanswered
}

// A person at the page is limited by no policy. The record names that person, and with a user what line of the file has decided, also for what was hidden.
//
// Guarantees: G-0098.4
func TestARecordNamesTheRule(t *testing.T) {
	r := new(recorder)
	f := withPolicy(t, protocol.Latest, `{"policy": [
		{"who": "token ada", "allow": ["a/who"], "deny": ["b/*"]}]}`, gateway.Options{Audit: r.write})
	f.identity = "token ada"
	session := f.client(protocol.Latest, client.Options{})
	for _, tool := range []string{"a__who", "b__who", "c__who"} {
		_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{Name: tool})
	}
	_, _ = session.GetPrompt(timeout(t), &protocol.GetPromptParams{Name: "a__greet"})
	if result, err := f.Call(timeout(t), "b__who", []byte(`{}`)); err != nil || !strings.Contains(string(result), "b and ") {
		t.Errorf("the person: %s, %v", result, err)
	}
	var got []string
	for _, record := range r.all {
		if record.Method == protocol.MethodCallTool || record.Method == protocol.MethodGetPrompt {
			rule := record.Rule
			if i := strings.Index(rule, "mcp.json:"); i >= 0 {
				rule = rule[i:]
			}
			got = append(got, fmt.Sprintf("%s %s %s: %s", record.Principal, record.Name, record.Outcome, rule))
		}
	}
	want := []string{
		"token ada a__who answered: mcp.json:2:34: bowline.policy[0].allow[0]",
		"token ada b__who denied: mcp.json:2:53: bowline.policy[0].deny[0]",
		"token ada c__who failed: ",
		"token ada a__greet denied: bowline.policy: no rule for this user names it",
		"admin b__who answered: a person at the page may do everything",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The endpoint for search finds, describes and calls what its client may see, and nothing else.
//
// Guarantees: G-0098.1
func TestSearchFindsWhatAPolicyAllows(t *testing.T) {
	servers := two()
	f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"allow":["a/*"]}]}}`))
	_, search := searchable(t, f)
	session := f.at(search, protocol.Latest, client.Options{})
	if got, _ := use(t, session, "find_tools", given{"query": "who"}); got != `[{"name":"a__who","parameters":["you"]}]` {
		t.Error(got)
	}
	for _, tool := range []string{"describe_tool", "call_tool", "call_read_only_tool"} {
		hidden, failed := use(t, session, tool, given{"name": "b__who"})
		unknown, _ := use(t, session, tool, given{"name": "c__who"})
		if !failed || strings.ReplaceAll(hidden, "b__who", "c__who") != unknown {
			t.Errorf("%s: %s, %s", tool, hidden, unknown)
		}
	}
}

// Each group of the file is an endpoint, at which a client finds what the group has, and nothing else; one that the file does not have is empty.
//
// Guarantees: G-0098.6
func TestGroups(t *testing.T) {
	servers := two()
	server.AddTool(servers["b"], protocol.Tool{Name: "look", Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true}}, func(context.Context, struct{}) (string, error) { return "seen", nil })
	f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"groups":{
		"only-a": {"servers": ["a"]}, "reading": {"readOnly": true, "deny": ["a/*"]}, "some": {"allow": ["*/greet"]}, "none": {"allow": []}}}}`))
	endpoint := streamable.NewHandler(f.Server(), streamable.HandlerOptions{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.ServeHTTP(w, r.WithContext(gateway.WithGroup(r.Context(), strings.TrimPrefix(r.URL.Path, "/"))))
	}))
	t.Cleanup(func() {
		endpoint.Shutdown(context.Background(), site.Config)
		site.Close()
	})
	for group, want := range map[string]string{
		"":        "a__who b__look b__who a__greet b__greet a:/one b:/one a:/all/{N} b:/all/{N}",
		"only-a":  "a__who a__greet a:/one a:/all/{N}",
		"reading": "b__look b__greet b:/one b:/all/{N}", "some": "a__greet b__greet", "none": "", "other": "",
	} {
		if has := f.HasGroup(group); has != (group != "" && group != "other") {
			t.Errorf("the gateway has the group %q: %v", group, has)
		}
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			checkWays(t, f.at(site.URL+"/"+group, version, client.Options{}), strings.Fields(want))
		}
	}
}

// Of a changed list only those clients are told who see another one.
//
// Guarantees: G-0098.11
func TestNewsAreForThoseWhoSeeThem(t *testing.T) {
	const rules, groups = `"policy":[{"who":"token ada","allow":["a/*"]},{"who":"token bob","allow":["b/*"]}]`, `"groups":{"ada":{"servers":["a"]},"bob":{"servers":["b"]}}`
	for _, c := range [][2]string{{protocol.LatestLegacy, rules}, {protocol.Latest, rules}, {protocol.LatestLegacy, groups}, {protocol.Latest, groups}} {
		version, block := c[0], c[1]
		synctest.Test(t, func(t *testing.T) {
			servers, o := two(), gateway.Options{}
			if block == groups {
				o.Server.Middleware = []server.Middleware{atOwnGroup}
			}
			f := newFleetFor(t, protocol.Latest, servers, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{`+block+`}}`))
			told := map[string]int{}
			var mu sync.Mutex
			for _, who := range []string{"ada", "bob"} {
				f.identity = "token " + who
				everything(t, f.client(version, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, is := e.(*client.ToolsChanged); is {
						mu.Lock()
						defer mu.Unlock()
						told[who]++
					}
				}}))
			}
			add := func(to, name string) (ada, bob int) {
				server.AddTool(servers[to], protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
				pass(10 * time.Second) // until it is announced, in virtual time
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				defer clear(told)
				return told["ada"], told["bob"]
			}
			add("a", "zero") // with it comes what the servers had at their start
			for _, to := range []string{"a", "b", "a"} {
				ada, bob := add(to, "more"+to+fmt.Sprint(time.Now().Unix()))
				if want := to == "a"; (ada == 1) != want || (bob == 1) == want || ada+bob != 1 {
					t.Errorf("%s, %s: after a change of %s ada was told %d times, bob %d", version, block, to, ada, bob)
				}
			}
		})
	}
}

// atOwnGroup lets each user come to the endpoint of the group that is called as he is.
func atOwnGroup(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		return next(gateway.WithGroup(ctx, strings.TrimPrefix(r.Origin.Identity, "token ")), r)
	}
}

// What a file decides is explained as the gateway would decide, without one that runs.
//
// Guarantees: G-0098.7
func TestExplain(t *testing.T) {
	const servers = `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"tools":{"deny":["hidden"]}}},"b":{"command":"/bin/b"}}`
	catalogue := filepath.Join(t.TempDir(), "catalogue.json")
	f := newFleetFor(t, protocol.Latest, two(), gateway.Options{Catalogue: catalogue}, load(t, servers+`}`))
	everything(t, f.client(protocol.Latest, client.Options{}))
	failOn(t, f.Close(timeout(t)))
	g := gateway.New(gateway.Options{Catalogue: catalogue})
	defer g.Close(t.Context())
	explain := func(block string, user gateway.User, names ...string) (got []string) {
		verdicts, err := g.Explain(load(t, servers+block+`}`), user, names...)
		if err != nil {
			return []string{err.Error()}
		}
		for _, v := range verdicts {
			_, by, _ := strings.Cut(v.By, "mcp.json:")
			got = append(got, fmt.Sprint(v.Server, "/", v.Name, " ", v.Allowed, " ", cmp.Or(by, v.By)))
		}
		return got
	}
	const rules = `,"bowline":{"policy":[{"who":"group:x","allow":["a/a:*"]},{"allow":["b/b:/all/*","b/who"]}]}`
	for _, c := range []struct {
		block string
		user  gateway.User
		names []string
		want  []string
	}{
		{rules, gateway.User{}, []string{"b__who", "b/who", "b/other", "b:/all/7", "a:/one"}, []string{
			"b/who true 1:187: bowline.policy[1].allow[1]", "b/who true 1:187: bowline.policy[1].allow[1]", "b/other false bowline.policy: no rule for this user names it",
			"b/b:/all/7 true 1:174: bowline.policy[1].allow[0]", "a/a:/one false bowline.policy: no rule for this user names it"}},
		{rules, gateway.User{Claims: map[string][]string{"groups": {"x"}}}, []string{"a:/one", "a:/all/7"}, []string{"a/a:/one true 1:154: bowline.policy[0].allow[0]", "a/a:/all/7 true 1:154: bowline.policy[0].allow[0]"}},
		{`,"bowline":{"policy":[{"allow":["b/b:/all/7"]}]}`, gateway.User{}, []string{"b:/all/7"}, []string{"b/b:/all/7 false the template by which it is found is not allowed"}},
		{`,"bowline":{"groups":{"g":{"servers":["b"]}}}`, gateway.User{Group: "g"}, []string{"a/who", "b/who"}, []string{"a/who false 1:128: bowline.groups.g", "b/who true 1:128: bowline.groups.g"}},
		{rules, gateway.User{}, []string{"b:/all/%37"}, []string{"b/b:/all/%37 false it has a shorter spelling, and only that is found"}},
		{``, gateway.User{}, []string{"a/hidden", "a/who"}, []string{"a/hidden false the entry of a does not offer it (bowline.tools)", "a/who true the file has no policy"}},
		{``, gateway.User{}, []string{"c/x"}, []string{`"c/x" is not known: write a server of the file, a slash, and a name`}},
	} {
		if got := explain(c.block, c.user, c.names...); !slices.Equal(got, c.want) {
			t.Errorf("%s %v\ngot  %q\nwant %q", c.block, c.names, got, c.want)
		}
	}
	if all := explain(rules, gateway.User{}); len(all) != 8 {
		t.Errorf("of everything: %q", all)
	}
	broken := load(t, strings.Replace(servers, `"b":{`, `"c":{"command":7},"b":{`, 1)+`}`)
	if verdicts, err := g.Explain(broken, gateway.User{}, "a/who", "b/who"); err != nil || len(verdicts) != 2 || !verdicts[0].Allowed || !verdicts[1].Allowed {
		t.Errorf("beside a server that is wrong: %+v, %v, want both allowed", verdicts, err)
	}
	if rate, err := g.ExplainRate(broken, gateway.User{}); err != nil || rate != (gateway.RateVerdict{}) {
		t.Errorf("the rate beside a server that is wrong: %+v, %v, want none", rate, err)
	}
}

// A file that changes the policy changes at once what users may do, and they are told that their lists have changed.
//
// Guarantees: G-0098.5
func TestAPolicyChanges(t *testing.T) {
	f := withPolicy(t, protocol.Latest, `{"policy": [{"allow": ["a/*"]}]}`, gateway.Options{})
	changed := make(chan bool, 10)
	session := f.client(protocol.LatestLegacy, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if _, is := e.(*client.ToolsChanged); is {
			changed <- true
		}
	}})
	checkWays(t, session, []string{"a__who", "a__greet", "a:/one", "a:/all/{N}"})
	for len(changed) > 0 {
		<-changed
	}
	f.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"allow":["b/who"]}]}}`))
	<-changed
	if all := everything(t, session); !slices.Equal(all, []string{"b__who"}) {
		t.Errorf("after a change it sees %q", all)
	}
	checkWays(t, f.client(protocol.LatestLegacy, client.Options{}), []string{"b__who"})
}

// Who may not see a resource any more hears of no change of it, and hears again when he may. Others hear all the while.
//
// Guarantees: G-0098.19
func TestASubscriptionFollowsThePolicy(t *testing.T) {
	const servers = `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":%s}`
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		synctest.Test(t, func(t *testing.T) {
			all := two()
			f := newFleetFor(t, protocol.Latest, all, gateway.Options{}, load(t, fmt.Sprintf(servers, `{}`)))
			var mu sync.Mutex
			told := map[string]int{}
			for _, who := range []string{"ada", "bob"} {
				f.identity = "token " + who
				session := f.client(version, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, is := e.(*client.ResourceUpdated); is {
						mu.Lock()
						defer mu.Unlock()
						told[who]++
					}
				}})
				everything(t, session)
				failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}))
			}
			for _, step := range []struct {
				policy   string
				ada, bob int
			}{
				{`{}`, 1, 1},
				{`{"policy":[{"who":"token ada","allow":["a/*"]},{"who":"token bob","allow":["b/*"]}]}`, 1, 0},
				{`{"policy":[{"allow":["b/*"]}]}`, 0, 0},
				{`{"policy":[{"allow":["*/*"]}]}`, 1, 1},
				{`{"policy":[{"who":"token ada","deny":["a/a:/one"]},{"allow":["*/*"]}]}`, 0, 1},
				{`{}`, 1, 1},
			} {
				f.apply(load(t, fmt.Sprintf(servers, step.policy)))
				pass(10 * time.Second) // until changed lists are announced, in virtual time
				mu.Lock()
				clear(told)
				mu.Unlock()
				all["a"].ResourceUpdated("a:/one")
				pass(time.Second)
				synctest.Wait()
				mu.Lock()
				if told["ada"] != step.ada || told["bob"] != step.bob {
					t.Errorf("%s, %s: ada is told %d times, bob %d, want %d and %d", version, step.policy, told["ada"], told["bob"], step.ada, step.bob)
				}
				mu.Unlock()
			}
		})
	}
}

// A member that a server could take for another one is refused, before any server hears of it: else it could be asked for something else than what was
// allowed.
//
// Guarantees: G-0098.12
func TestARequestMeansOneThing(t *testing.T) {
	f := withPolicy(t, protocol.Latest, `{"policy": [{"allow": ["a/*"], "deny": ["a/greet"]}]}`, gateway.Options{})
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		session := f.client(version, client.Options{})
		everything(t, session)
		for _, c := range [][2]string{
			{protocol.MethodCallTool, `{"name":"a__who","Name":"other","arguments":{}}`}, {protocol.MethodCallTool, `{"NAME":"other","name":"a__who"}`},
			{protocol.MethodCallTool, `{"name":"a__who","arguments":{"you":"x"},"Arguments":{"you":"y"}}`},
			{protocol.MethodGetPrompt, `{"name":"a__who","nam\u0045":"greet"}`},
			{protocol.MethodReadResource, `{"uri":"a:/one","URI":"b:/one"}`},
			{protocol.MethodComplete, `{"ref":{"type":"ref/resource","uri":"a:/one","Uri":"b:/one"},"argument":{"name":"N","value":""}}`},
			{protocol.MethodComplete, `{"ref":{"type":"ref/resource","uri":"a:/one"},"Ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"N","value":""}}`},
		} {
			before := f.passed("a")
			_, err := session.Relay(timeout(t), c[0], []byte(c[1]))
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams || f.passed("a") > before {
				t.Errorf("%s %s: %v", version, c[1], err)
			}
		}
		if err := second(session.Relay(timeout(t), protocol.MethodCallTool, []byte(`{"name":"a__who","arguments":{"Name":"x","name":"y"},"_meta":{"Name":1}}`))); err != nil && strings.Contains(err.Error(), "differs from") {
			t.Errorf("the arguments of a tool are its own: %v", err)
		}
	}
}

// A URI that is found by a template has no other spelling that a pattern would not match.
//
// Guarantees: G-0098.13
func TestOtherSpellingsOfAURI(t *testing.T) {
	servers := two()
	server.AddTemplate(servers["a"], protocol.ResourceTemplate{URITemplate: "file:///{+path}", Name: "files"}, func(context.Context, struct {
		Path string `json:"path"`
	}) (string, error) {
		return "text", nil
	})
	const block = `"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"deny":["a/file:///p/secret*"]},{"allow":["a/file:///p/*","a/file:///{+path}"]}]}}`
	f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{`+block))
	session := f.client(protocol.Latest, client.Options{})
	for uri, want := range map[string]bool{
		"file:///p/x": true, "file:///p/my%20file": true, "file:///p/a%2Fb": true, "file:///p/..x/.y": true, "file:///p/secret": false, "file:///q": false,
		"file:///p/../q": false, "file:///p/x/../secret": false, "file:///p/./secret": false, "file:///p/%73ecret": false, "file:///p/%2e%2e/q": false,
		"file:///p/..%2fq": false, "file:///p/..%5Cq": false, `file:///p/..\q`: false, "file:///p/%252e%252e/q": false, "file:///p/..": false, "file:///p/%": false,
	} {
		if err := second(session.ReadResource(timeout(t), &protocol.ReadResourceParams{URI: uri})); (err == nil) != want {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// What a policy hides, and what does not exist, are refused with the same bytes on the wire but for the name and the number of the request.
//
// Guarantees: G-0098.1
func TestHiddenHasTheBytesOfUnknown(t *testing.T) {
	f := withPolicy(t, protocol.Latest, `{"policy": [{"allow": ["a/*"]}]}`, gateway.Options{})
	endpoint := streamable.NewHandler(f.Server(), streamable.HandlerOptions{})
	web := httptest.NewServer(endpoint)
	t.Cleanup(func() {
		endpoint.Close(time.Second)
		web.Close()
	})
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		sent := new(lastAnswer)
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version, FailFast: true}).
			Connect(timeout(t), &streamable.Client{URL: web.URL, HTTP: &http.Client{Transport: sent}})
		failOn(t, err)
		defer session.Close(context.Background())
		everything(t, session)
		number := regexp.MustCompile(`"id":\d+`)
		refused := func(name string, way func() error) string {
			if err := way(); err == nil {
				t.Errorf("%s: %s is not refused", version, name)
			}
			return number.ReplaceAllString(strings.ReplaceAll(sent.text(), name, "NAME"), `"id":0`)
		}
		tool := func(name string) string {
			return refused(name, func() error {
				return second(session.CallTool(timeout(t), &protocol.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)}))
			})
		}
		prompt := func(name string) string {
			return refused(name, func() error {
				return second(session.GetPrompt(timeout(t), &protocol.GetPromptParams{Name: name}))
			})
		}
		resource := func(name string) string {
			return refused(name, func() error {
				return second(session.ReadResource(timeout(t), &protocol.ReadResourceParams{URI: name}))
			})
		}
		for _, pair := range [][2]string{{tool("b__who"), tool("b__why")}, {prompt("b__greet"), prompt("b__great")}, {resource("b:/one"), resource("b:/six")}} {
			if pair[0] != pair[1] || !strings.Contains(pair[0], "NAME") {
				t.Errorf("%s: hidden:\n%s\nunknown:\n%s", version, pair[0], pair[1])
			}
		}
	}
}

// A lastAnswer keeps the status, the headers and the body of the last answer with a body.
type lastAnswer struct {
	mu   sync.Mutex
	last string
}

// RoundTrip implements http.RoundTripper.
func (l *lastAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Method != http.MethodPost {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Header.Del("Date")
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(body) > 0 {
		l.last = fmt.Sprint(response.Status, response.Header, string(body))
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

func (l *lastAnswer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
