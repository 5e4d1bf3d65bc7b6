package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// planned returns the plan of servers, each with its name as prefix.
func planned(servers ...Server) *names.Plan {
	all := make([]names.Server, len(servers))
	for i, one := range servers {
		all[i].Name = one.Name
	}
	plan, _ := names.Make(0, all)
	return plan
}

func tools(own ...string) List {
	list := List{At: noon, TTL: time.Minute}
	for _, name := range own {
		list.Entries = append(list.Entries, json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)))
	}
	return list
}

func uris(member string, all ...string) List {
	list := List{At: noon, TTL: time.Minute}
	for _, uri := range all {
		list.Entries = append(list.Entries, json.RawMessage(fmt.Sprintf(`{%q:%q,"name":"n"}`, member, uri)))
	}
	return list
}

func called(items []Item) []string {
	var all []string
	for _, item := range items {
		all = append(all, item.Name)
	}
	return all
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A client gets the entry of the server with nothing changed but the name, and what it calls is found.
//
// Guarantees: G-0090.8
func TestAnEntryKeepsAllButItsName(t *testing.T) {
	files := Server{Name: "files"}
	s := Empty().Apply(planned(files), []Server{files}).Learn(files, Tools, List{Entries: []json.RawMessage{
		json.RawMessage(`{ "title": "<R> & \u2028", "x-own": [1, {"name": "kept"}], "na\u006de": "read", "inputSchema": {"properties": {"name": {}}} }`),
	}})
	want := `{"title":"<R> & \u2028","x-own":[1,{"name":"kept"}],"na\u006de":"files__read","inputSchema":{"properties":{"name":{}}}}`
	tool, ok := s.Find(Tools, "files__read")
	if !ok || tool.Server != "files" || tool.Own != "read" || string(tool.Raw) != want {
		t.Errorf("got %v, %+v, %s\nwant %s", ok, tool, tool.Raw, want)
	}
	if _, ok := s.Find(Tools, "read"); ok {
		t.Error("the bare name is found, too")
	}
}

// What is no tool is left out with a notice, and the others are offered: a client would refuse the whole list.
//
// Guarantees: G-0090.9
func TestWhatIsNoEntry(t *testing.T) {
	big := strings.Repeat("é", MaxDescription)
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	schema := `"inputSchema":{}`
	for _, c := range []struct {
		kind        Kind
		raw, notice string
	}{
		{Tools, `{"name":"t","inputSchema":{}}`, ""},
		{Tools, `{"name":"t","inputSchema":{},"description":null,"annotations":null}`, ""},
		{Tools, `{"name":"t"}`, `the inputSchema of "t" is no object`},
		{Tools, `{"name":"t","inputSchema":true}`, `the inputSchema of "t" has the wrong type`},
		{Tools, `{"name":"t","inputSchema":null}`, `the inputSchema of "t" is no object`},
		{Tools, `{"name":"t","inputSchema":{},"outputSchema":[]}`, `the outputSchema of "t" has the wrong type`},
		{Tools, `{"name":"t","inputSchema":{},"description":5}`, `the description of "t" has the wrong type`},
		{Tools, `{"name":"",` + schema + `}`, "it has no name"},
		{Tools, `{"name":7,` + schema + `}`, "it has no name"},
		{Tools, `{"Name":"t",` + schema + `}`, "it has no name"},
		{Tools, `{"name":"t","name":"u",` + schema + `}`, `it repeats the member "name"`},
		{Tools, `{"name":"t","n\u0061me":"u",` + schema + `}`, `it repeats the member "name"`},
		{Tools, `"t"`, "it is no JSON object"},
		{Tools, `{"name":"t",`, "it is no JSON"},
		{Tools, `{"name":"t",` + schema + `}x`, "it is no JSON"},
		{Tools, "{\"name\":\"\xff\"," + schema + `}`, "it is no JSON"},
		{Tools, `{"name":"t","inputSchema":{},"x":` + deep + `}`, "nested deeper than 64"},
		{Tools, `{"name":"t","inputSchema":{},"x":` + deep[1:len(deep)-1] + `}`, ""},
		{Tools, `{"name":"t","inputSchema":{"d":"` + strings.Repeat("x", MaxEntry) + `"}}`, "more than 1048576"},
		{Tools, `{"name":"t","inputSchema":{},"x":"` + strings.Repeat("x", 4*MaxEntry) + `"}`, "it has 41"},
		{Tools, `{"name":"t","inputSchema":{},"description":"` + big + `"}`, `the description of "t" has 131072 bytes, and is cut to 65536`},
		{Tools, `{"name":"t","inputSchema":{},"description":"` + big[:MaxDescription] + `"}`, ""},
		{Prompts, `{"name":"p","arguments":[]}`, ""},
		{Prompts, `{"name":"p","arguments":{}}`, `the arguments of "p" has the wrong type`},
		{Resources, `{"uri":"file:///a","name":"a"}`, ""},
		{Resources, `{"name":"a"}`, "it has no uri"},
		{Templates, `{"uriTemplate":"file:///{a}","name":"a"}`, ""},
		{Templates, `{"uriTemplate":"file:///{a","name":"a"}`, "a { without its }"},
		{Templates, `{"uriTemplate":"` + strings.Repeat("a", longestTemplate+1) + `"}`, "too long"},
	} {
		s := Server{Name: "s"}
		known := Empty().Apply(planned(s), []Server{s}).Learn(s, c.kind, List{Entries: []json.RawMessage{json.RawMessage(c.raw)}})
		items, notices := known.Items(c.kind), known.Notices("s")
		cut := strings.Contains(c.notice, "cut")
		if (len(items) == 1) != (c.notice == "" || cut) || (len(notices) == 0) != (c.notice == "") || len(notices) == 1 && !strings.Contains(notices[0].Text, c.notice) {
			t.Errorf("%s %.80s: %d offered, notices %v; want %q", c.kind, c.raw, len(items), notices, c.notice)
		}
		if cut && (len(items[0].Raw) > MaxDescription+200 || !json.Valid(items[0].Raw)) {
			t.Errorf("the cut entry has %d bytes", len(items[0].Raw))
		}
	}
}

// A tool with a schema from which a reference leads out is offered as it is, with a notice that says what clients may refuse.
//
// Guarantees: G-0090.15
func TestReferencesThatLeadOutAreNoticed(t *testing.T) {
	raw := json.RawMessage(`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"$dynamicRef":"#a"}}},"outputSchema":{"items":{"$ref":"https://example.com/a"}}}`)
	local := json.RawMessage(`{"name":"u","inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{}}}}`)
	s := Server{Name: "s"}
	known := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, List{Entries: []json.RawMessage{raw, local}})
	var texts []string
	for _, notice := range known.Notices("s") {
		texts = append(texts, notice.Text)
	}
	equal(t, "notices", texts, []string{
		`the inputSchema of "t" may be refused by clients: schema: unsupported reference: $dynamicRef "#a": use $ref`,
		`the outputSchema of "t" may be refused by clients: schema: unsupported reference: $ref "https://example.com/a" is in another document, which is not fetched: copy it into $defs`,
	})
	equal(t, "of these about input schemas", known.RefusedInputs("s"), texts[:1])
	if items := known.Items(Tools); len(items) != 2 || !strings.Contains(string(items[0].Raw), `"$dynamicRef":"#a"`) {
		t.Errorf("got %v, want both tools", items)
	}
	prompt := json.RawMessage(`{"name":"p","inputSchema":{"$dynamicRef":"#a"}}`)
	if notices := known.Learn(s, Prompts, List{Entries: []json.RawMessage{prompt}}).Notices("s"); len(notices) != len(texts) {
		t.Errorf("got the notices %v, want no more for a prompt", notices)
	}
	many := List{Entries: []json.RawMessage{raw, raw}}
	for i := range MaxNotices {
		many.Entries = append(many.Entries, bytes.Replace(raw, []byte(`"t"`), fmt.Appendf(nil, `"t%d"`, i), 1))
	}
	many.Entries = append(many.Entries, json.RawMessage(`{}`))
	texts = nil
	for _, notice := range known.Learn(s, Tools, many).Notices("s") {
		texts = append(texts, notice.Text)
	}
	if len(texts) != 2+MaxNotices+1 || texts[0] != `"t" is listed twice: the first one counts` || !strings.Contains(texts[1], "is left out") {
		t.Errorf("got %d notices, %q, want first what is left out", len(texts), texts)
	}
	equal(t, "the last notice", texts[len(texts)-1], fmt.Sprintf("and %d more", 2*(MaxNotices+1)-MaxNotices))
}

// Lists, entries and notices have bounds, and what is left out is said.
//
// Guarantees: G-0090.9
func TestListsAreBounded(t *testing.T) {
	s := Server{Name: "s"}
	start := Empty().Apply(planned(s), []Server{s})
	many := make([]string, MaxEntries+5)
	for i := range many {
		many[i] = fmt.Sprintf("t%06d", i)
	}
	known := start.Learn(s, Tools, tools(many...))
	if n := len(known.Items(Tools)); n != MaxEntries {
		t.Errorf("%d tools are offered, want %d", n, MaxEntries)
	}
	if notices := known.Notices("s"); len(notices) != 1 || !strings.Contains(notices[0].Text, "the last 5 of 10005 are left out") {
		t.Errorf("notices: %v", notices)
	}
	var large List
	for i := range 2*MaxBytes/(MaxEntry/2) + 1 {
		large.Entries = append(large.Entries, json.RawMessage(fmt.Sprintf(`{"name":"t%d","inputSchema":{"d":%q}}`, i, strings.Repeat("x", MaxEntry/2))))
	}
	size := 0
	for _, item := range start.Learn(s, Tools, large).Items(Tools) {
		size += len(item.Raw)
	}
	if size > MaxBytes || size < MaxBytes/2 {
		t.Errorf("%d bytes are offered, want at most %d", size, MaxBytes)
	}
	twice := start.Learn(s, Tools, tools(slices.Repeat([]string{"t"}, 100)...))
	notices := twice.Notices("s")
	if len(twice.Items(Tools)) != 1 || len(notices) != MaxNotices+1 || notices[MaxNotices].Text != fmt.Sprintf("and %d more", 99-MaxNotices) {
		t.Errorf("%d offered, %d notices, the last %v", len(twice.Items(Tools)), len(notices), notices[len(notices)-1])
	}
}

// Names that could not be kept, and names that another has, are notices of their server.
//
// Guarantees: G-0090.1, G-0090.4
func TestNoticesOfNames(t *testing.T) {
	a, b := Server{Name: "a"}, Server{Name: "b"}
	bare := ""
	plan, _ := names.Make(0, []names.Server{{Name: "a", Prefix: &bare}, {Name: "b", Prefix: &bare}})
	s := Empty().Apply(plan, []Server{a, b}).Learn(a, Tools, tools("t")).Learn(b, Tools, tools("t", "x.y")).
		Learn(a, Resources, uris("uri", "u:1")).Learn(b, Resources, uris("uri", "u:1"))
	if notices := s.Notices("a"); len(notices) != 0 {
		t.Errorf("notices of the first: %v", notices)
	}
	var texts []string
	for _, notice := range s.Notices("b") {
		texts = append(texts, string(notice.Kind)+": "+notice.Text)
	}
	name, _ := plan.Name("b", "x.y")
	equal(t, "notices", texts, []string{
		`tools: the name has characters that some clients refuse: "x.y" is offered as ` + name,
		`tools: "t" is hidden: "a" has the name "t"`, `resources: "u:1" is hidden: "a" has the name "u:1"`,
	})
	if owner, _ := s.Find(Resources, "u:1"); owner.Server != "a" || len(s.merged[Resources].hidden) != 1 {
		t.Errorf("the owner is %v", owner)
	}
}

// What is not offered is not found either, and deny wins.
//
// Guarantees: G-0090.10, G-0098.17
func TestFilters(t *testing.T) {
	s := Server{Name: "s", Filter: map[Kind]Filter{Tools: {Allow: []string{"read_*", "list"}, Deny: []string{"*secret*"}}, Resources: {Allow: []string{}}}}
	known := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tools("read_a", "read_secrets", "list", "lists", "delete")).
		Learn(s, Resources, uris("uri", "u:1"))
	equal(t, "offered", called(known.Items(Tools)), []string{"s__list", "s__read_a"})
	for i, want := range []int{2, 0} {
		equal(t, "counted", known.Ages("s")[i].Entries, want)
	}
	for _, kind := range []Kind{Tools, Resources} {
		for _, name := range []string{"s__delete", "s__read_secrets", "u:1"} {
			if _, ok := known.Find(kind, name); ok {
				t.Errorf("%s is found", name)
			}
		}
	}
	open := Server{Name: "s"}
	if n := len(known.Apply(planned(open), []Server{open}).Items(Tools)); n != 5 {
		t.Errorf("without the filter %d are offered", n)
	}
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "abc", true}, {"a*", "ba", false}, {"*c", "abc", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "acb", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*a?c*", "xxabcx", true}, {"**", "x", true}, {"?", "", false}, {"[a]", "a", false}, {"*ab*ba*", "aba", false},
		{"a?c", "aéc", true}, {"a??c", "aéc", false}, {"?", "世", true}, {"*?x*", "世x", true}, {"?", "\xff", true}, {"é*", "é", true}, {"*é", "aé", true}, {"*?é", "é", false}, {"*?", "é", true},
		{"*é?*", "é", false}, {"*", "\xff", true}, {"**a*?", "éaé", true}, {"a*bc", "abbc", true}, {"a**", "a", true}, {"a*?", "a", false},
	} {
		if got := (Filter{Allow: []string{c.pattern}}).Offers(c.text); got != c.want {
			t.Errorf("%q, %q: got %v", c.pattern, c.text, got)
		}
	}
}

// A URI that the file denies is not found by a template, at whatever server.
//
// Guarantees: G-0090.10
func TestDenyWinsOverTemplates(t *testing.T) {
	a, b := Server{Name: "a", Filter: map[Kind]Filter{Resources: {Deny: []string{"x://secret*"}}}}, Server{Name: "b"}
	both := Empty().Apply(planned(a, b), []Server{a, b}).Learn(a, Resources, uris("uri", "x://secret")).Learn(b, Resources, uris("uri", "x://secret"))
	if item, found := both.Resource("x://secret"); !found || item.Server != "b" {
		t.Errorf("what the file hides of one server is another's, and found at %q: %t", item.Server, found)
	}
	s := Empty().Apply(planned(a, b), []Server{a, b}).Learn(a, Templates, uris("uriTemplate", "x://{id}")).Learn(b, Templates, uris("uriTemplate", "x://{id}", "x://{+id}"))
	if item, found := s.Resource("x://open"); !found || item.Server != "a" {
		t.Error("what is not denied is not found")
	}
	for _, uri := range []string{"x://secret1", "x://%73ecret1", "x://secre%74"} {
		if item, found := s.Resource(uri); found {
			t.Errorf("%s, which is denied, is found at %s", uri, item.Server)
		}
	}
}

// Who sees a part finds only what is in it, and a URI at its own server or nowhere.
//
// Guarantees: G-0098.1
func TestAPart(t *testing.T) {
	a, b := Server{Name: "a"}, Server{Name: "b"}
	s := Empty().Apply(planned(a, b), []Server{a, b}).
		Learn(a, Resources, uris("uri", "x://1", "x://2")).Learn(b, Templates, uris("uriTemplate", "x://{id}", "y://{id}"))
	hides := func(hidden ...string) *Snapshot {
		return s.For(func(kind Kind, item Item) bool { return !slices.Contains(hidden, item.Own) })
	}
	for _, c := range []struct {
		seen      *Snapshot
		uri, want string
	}{
		{hides(), "x://1", "a"}, {hides(), "x://3", "b"}, {hides("x://1"), "x://1", ""}, {hides("x://1"), "x://2", "a"},
		{hides("x://3"), "x://3", ""}, {hides("x://{id}"), "x://3", ""}, {hides("x://{id}"), "x://1", "a"}, {hides("x://{id}"), "y://3", "b"}, {hides(), "z://1", ""},
	} {
		if item, found := c.seen.Resource(c.uri); item.Server != c.want && found || found != (c.want != "") {
			t.Errorf("%s is found at %q, want %q", c.uri, item.Server, c.want)
		}
	}
	if seen := hides("x://1"); seen.Digest(Resources) == s.Digest(Resources) || seen.Digest(Templates) != s.Digest(Templates) || len(seen.Items(Resources)) != 1 {
		t.Error("the lists are not those of the part")
	}
	if ages := hides("x://1").Ages("a"); len(ages) != 1 || ages[0].Entries != 1 {
		t.Errorf("who sees one of two resources is told of %+v", ages)
	}
}

// A tool says that it only reads by true, once, and by nothing else.
//
// Guarantees: G-0098.3
func TestReadOnly(t *testing.T) {
	for annotations, want := range map[string]bool{
		`{"readOnlyHint":true}`: true, `{"a":{},"readOnlyHint":true}`: true, `{"readOnlyHint":false}`: false, `{"readOnlyHint":"true"}`: false, `{"readOnlyHint":1}`: false,
		`{}`: false, `null`: false, `{"readonlyhint":true}`: false, `{"readOnlyHint":true,"readOnlyHint":false}`: false, `{"x":{"readOnlyHint":true}}`: false,
	} {
		e, _, _, err := acceptOne(Tools, json.RawMessage(`{"name":"t","inputSchema":{"type":"object"},"annotations":`+annotations+`}`))
		if err != nil || e.says.ReadOnly != want {
			t.Errorf("%s: %v, %v", annotations, e.says.ReadOnly, err)
		}
	}
}

// A tool says that it may or must be a task, and that it is stateful, by the words of the specification.
func TestWhatAToolSays(t *testing.T) {
	for members, want := range map[string]Says{
		`"execution":{"taskSupport":"optional"}`: {CanBeTask: true}, `"execution":{"taskSupport":"required"}`: {CanBeTask: true, MustBeTask: true},
		`"execution":{"taskSupport":"forbidden"}`: {}, `"execution":{"taskSupport":"Required"}`: {}, `"execution":{}`: {}, `"execution":null`: {}, `"taskSupport":"required"`: {},
		`"_meta":{"io.github.bowline-mcp/mode":"stateful"}`: {Stateful: true}, `"_meta":{"a":1,"io.github.bowline-mcp/mode":"stateless"}`: {},
		`"_meta":{"io.github.bowline-mcp/mode":true}`: {}, `"_meta":{}`: {}, `"io.github.bowline-mcp/mode":"stateful"`: {}, `"title":"t"`: {},
	} {
		e, _, _, err := acceptOne(Tools, json.RawMessage(`{"name":"t","inputSchema":{"type":"object"},`+members+`}`))
		if err != nil || e.says != want {
			t.Errorf("%s: %+v, %v", members, e.says, err)
		}
		if e, _, _, err := acceptOne(Prompts, json.RawMessage(`{"name":"t",`+members+`}`)); err != nil || e.says != (Says{}) {
			t.Errorf("a prompt with %s: %+v, %v", members, e.says, err)
		}
	}
}

// A URI belongs to the server that lists it, and otherwise to the first that has a template for it.
//
// Guarantees: G-0090.11
func TestResourcesAreFoundByURIAndTemplate(t *testing.T) {
	a, b := Server{Name: "a"}, Server{Name: "b"}
	s := Empty().Apply(planned(a, b), []Server{a, b}).
		Learn(a, Templates, uris("uriTemplate", "x://{id}", "x://{id}/{part}", "f://{+path}", "q://a{?x,y}", "s://a{/p*}{#f}", "d://a{.e}{;v}{&w}")).
		Learn(b, Templates, uris("uriTemplate", "x://{id}", "y://{id}")).
		Learn(b, Resources, uris("uri", "x://listed"))
	for uri, want := range map[string]string{
		"x://listed": "b", "x://1": "a", "x://1/2": "a", "x://1/2/3": "", "y://1": "b", "y://1%20x": "b", "y://": "b", "y://1/": "", "f://any/thing?x#y": "a",
		"q://a": "a", "q://a?x=1&y=2": "a", "q://ab": "", "s://a/b/c#d": "a", "s://a": "a", "d://a.txt;v=1&w=2": "a", "z://1": "", "": "",
		"x://1\n": "", "f://a\nb": "a", "f://" + strings.Repeat("a", LongestURI): "",
	} {
		item, ok := s.Resource(uri)
		if item.Server != want || ok != (want != "") || ok && item.Own != uri {
			t.Errorf("%.40q belongs to %q, want %q", uri, item.Server, want)
		}
	}
}

// Page by page, each item comes once while others come and go, and only our own cursors are taken.
//
// Guarantees: G-0090.7
func TestPages(t *testing.T) {
	s := Server{Name: "s"}
	known := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tools("a", "b", "c", "d", "e")).Learn(s, Prompts, tools("a", "b"))
	first, cursor, err := known.Page(Tools, nil, 2)
	if err != nil || cursor == nil {
		t.Fatalf("no next page: %v", err)
	}
	equal(t, "the first page", called(first), []string{"s__a", "s__b"})
	unchanged, _, _ := known.Page(Tools, cursor, 2)
	equal(t, "the second page", called(unchanged), []string{"s__c", "s__d"})
	known = known.Learn(s, Tools, tools("a", "aa", "c", "cc", "e")) // the item of the cursor has gone
	second, cursor, _ := known.For(func(_ Kind, item Item) bool { return item.Own != "cc" }).Page(Tools, cursor, 2)
	equal(t, "the second page after changes", called(second), []string{"s__c", "s__e"})
	if cursor != nil {
		t.Errorf("there is a third page at %s", *cursor)
	}
	_, ofPrompts, _ := known.Page(Prompts, nil, 1)
	for _, foreign := range []string{"", "2", encode(Tools, ""), "eyJwYWdlIjoyfQ", encode(Tools, "x") + "=", encode(Tools, "x")[1:], *ofPrompts} {
		_, _, err := known.Page(Tools, &foreign, 2)
		var refused *CursorError
		if !errors.As(err, &refused) || refused.Kind != Tools || !strings.Contains(err.Error(), "list of tools") {
			t.Errorf("the cursor %q: %v", foreign, err)
		}
	}
	if page, _, err := known.Page(Prompts, ofPrompts, 0); err != nil || len(page) != 1 {
		t.Errorf("a size of 0: %v, %v", page, err)
	}
}

// The least of what those say that take part counts, and a server that is away or unknown shortens it.
//
// Guarantees: G-0090.12
func TestHints(t *testing.T) {
	a, b, c := Server{Name: "a"}, Server{Name: "b"}, Server{Name: "c"}
	all := []Server{a, b, c}
	of := func(ttl time.Duration, private bool, own ...string) List {
		list := tools(own...)
		list.TTL, list.Private = ttl, private
		return list
	}
	here, bAway := func(string) bool { return false }, func(name string) bool { return name == "b" }
	s := Empty().Apply(planned(all...), all)
	equal(t, "unknown", s.Hint(Tools, here), Hint{TTL: WhileAway})
	s = s.Learn(a, Tools, of(time.Hour, false, "t")).Learn(b, Tools, of(time.Minute, true, "t"))
	equal(t, "one unknown", s.Hint(Tools, here), Hint{WhileAway, true})
	equal(t, "missing", s.Missing(Tools), []string{"c"})
	s = s.Learn(c, Tools, of(0, true))
	equal(t, "one has none", s.Hint(Tools, here), Hint{time.Minute, true})
	equal(t, "one is away", s.Hint(Tools, bAway), Hint{WhileAway, true})
	equal(t, "one that is away says less", s.Learn(b, Tools, of(time.Second, false, "t")).Hint(Tools, bAway), Hint{TTL: time.Second})
	equal(t, "ages", s.Ages("a"), []Age{{Tools, 1, noon}})
	if s.Missing(Tools) != nil || s.Ages("nobody") != nil {
		t.Error("somebody is missing, or nobody has an age")
	}
}

// A server is another one if its command or URL is another; with a new token it is the same.
//
// Guarantees: G-0090.6
func TestIdentities(t *testing.T) {
	same := IdentityOf(&stdio.Command{Path: "a", Args: []string{"b"}, Dir: "d"})
	if IdentityOf(&stdio.Command{Path: "a", Args: []string{"b"}, Dir: "d", Env: []string{"TOKEN=1"}}) != same {
		t.Error("the environment counts")
	}
	seen := map[string]bool{same: true}
	for _, other := range []string{
		IdentityOf(&stdio.Command{Path: "a", Args: []string{"b"}}), IdentityOf(&stdio.Command{Path: "a b", Dir: "d"}),
		IdentityOf(&stdio.Command{Path: "a", Args: []string{"c"}, Dir: "d"}), IdentityOf(&stdio.Command{Path: "a", Args: []string{"b", "c"}, Dir: "d"}), IdentityOf(&stdio.Command{Path: "a", Args: []string{"b c"}, Dir: "d"}), IdentityOf(&streamable.Client{URL: "a"}), IdentityOf(&sse.Client{URL: "b"}), IdentityOf(nil),
	} {
		if seen[other] {
			t.Error("two servers have the same identity")
		}
		seen[other] = true
	}
}

// What changes is said, once, and only if something else is offered.
//
// Guarantees: G-0090.5
func TestChanges(t *testing.T) {
	c, s := New(), Server{Name: "s"}
	equal(t, "nothing yet", c.Apply(planned(s), []Server{s}), nil)
	changed := c.Changed()
	if !c.Learn(s, Tools, tools("t")) || !wait.IsClosed(changed) {
		t.Error("a new tool is no change")
	}
	changed = c.Changed()
	later := tools("t")
	later.At = noon.Add(time.Hour)
	if c.Learn(s, Tools, later) || !wait.IsClosed(changed) {
		t.Error("the same tools are a change, or their age is none")
	}
	changed = c.Changed()
	if c.Learn(Server{Name: "other"}, Tools, tools("t")) || c.Learn(s, "other", tools("t")) || wait.IsClosed(changed) {
		t.Error("a server that is not there, or another list, is a change")
	}
	equal(t, "the server leaves", c.Apply(planned(), nil), []Kind{Tools})
}

// A catalogue under failures, late answers, reloads and restarts is what a plain model says: for each server of the
// file the last list that it gave under its present identity.
//
// Guarantees: G-0090.5, G-0090.6, G-0090.13
func TestCatalogueIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type last struct {
			identity string
			tools    []string
		}
		model := map[string]last{} // of the servers of the file
		lists := map[string]bool{} // of those that have answered
		s := Empty()
		serverOf := rapid.Custom(func(t *rapid.T) Server {
			return Server{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Identity: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "identity")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				servers := rapid.SliceOfNDistinct(serverOf, 0, 3, func(s Server) string { return s.Name }).Draw(t, "servers")
				s = s.Apply(planned(servers...), servers)
				next := map[string]last{}
				for _, one := range servers {
					if before, ok := model[one.Name]; ok && before.identity == one.Identity {
						next[one.Name] = before
					} else {
						next[one.Name], lists[one.Name] = last{identity: one.Identity}, false
					}
				}
				model = next
			},
			"learn": func(t *rapid.T) {
				from := serverOf.Draw(t, "from")
				own := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"t", "u", "v"}), rapid.ID[string]).Draw(t, "tools")
				s = s.Learn(from, Tools, tools(own...))
				if before, ok := model[from.Name]; ok && before.identity == from.Identity {
					model[from.Name], lists[from.Name] = last{from.Identity, own}, true
				}
			},
			"restart": func(t *rapid.T) {
				text, err := encodeFile(s)
				if err != nil {
					t.Fatal(err)
				}
				restored, err := decodeFile(text)
				if err != nil {
					t.Fatal(err)
				}
				var servers []Server
				for _, one := range s.servers {
					servers = append(servers, one.Server)
				}
				if restored = restored.Apply(planned(servers...), servers); restored.Digest(Tools) != s.Digest(Tools) {
					t.Fatalf("restored %v, was %v", called(restored.Items(Tools)), called(s.Items(Tools)))
				}
				s = restored
			},
			"": func(t *rapid.T) {
				var want, missing []string
				for name, one := range model {
					for _, own := range one.tools {
						want = append(want, name+"__"+own)
					}
					if !lists[name] {
						missing = append(missing, name)
					}
				}
				slices.Sort(want)
				if got := called(s.Items(Tools)); !slices.Equal(got, want) {
					t.Fatalf("offered %v, want %v", got, want)
				}
				if got := slices.Sorted(slices.Values(s.Missing(Tools))); !slices.Equal(got, slices.Sorted(slices.Values(missing))) {
					t.Fatalf("missing %v, want %v of %v", got, missing, slices.Collect(maps.Keys(model)))
				}
			},
		})
	})
}

// A list that another gateway has is taken over where none is known, and in place of one's own only if that may be.
func TestListOfAnotherGateway(t *testing.T) {
	s, c := Server{Name: "s"}, New()
	c.Apply(planned(s), []Server{s})
	never := func(List) bool { t.Error("asked about a list that is not known"); return false }
	if !c.LearnFromOther(s, Tools, tools("theirs"), never) {
		t.Error("nothing else is offered, although no list was known")
	}
	c.Learn(s, Tools, tools("own"))
	asked := func(may bool) func(List) bool {
		return func(own List) bool {
			equal(t, "the list of its own", own.Entries, tools("own").Entries)
			return may
		}
	}
	if c.LearnFromOther(s, Tools, tools("theirs"), asked(false)) {
		t.Error("something else is offered, although its own list was to stay")
	}
	equal(t, "tools", called(c.Snapshot().Items(Tools)), []string{"s__own"})
	if !c.LearnFromOther(s, Tools, tools("theirs"), asked(true)) {
		t.Error("nothing else is offered")
	}
	equal(t, "tools", called(c.Snapshot().Items(Tools)), []string{"s__theirs"})
}
