package catalogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// alone returns a snapshot of one server, and the server.
func alone() (*Snapshot, Server) {
	s := Server{Name: "s"}
	return Empty().Apply(planned(s), []Server{s}), s
}

// sized returns a tool of so many bytes.
func sized(name string, size int) json.RawMessage {
	const rest = `{"name":"","inputSchema":{"d":""}}`
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":{"d":"%s"}}`, name, strings.Repeat("x", size-len(rest)-len(name))))
}

// A list may have exactly 16 MiB, and what counts is what is kept of an entry.
//
// Guarantees: G-0090.9
func TestEdgesOfAList(t *testing.T) {
	start, s := alone()
	var list List
	for i := range MaxBytes / MaxEntry {
		list.Entries = append(list.Entries, sized(fmt.Sprintf("t%02d", i), MaxEntry))
	}
	known := start.Learn(s, Tools, list)
	if len(known.Items(Tools)) != len(list.Entries) || len(known.Notices("s")) != 0 {
		t.Errorf("of %d entries of 1 MiB %d are offered, with the notices %v", len(list.Entries), len(known.Items(Tools)), known.Notices("s"))
	}
	more := start.Learn(s, Tools, List{Entries: append(list.Entries, sized("u", 100))})
	if notices := more.Notices("s"); len(more.Items(Tools)) != len(list.Entries) || len(notices) != 1 || !strings.Contains(notices[0].Text, "at most 10000, and 16777216 bytes") {
		t.Errorf("one more: %d are offered, with the notices %v", len(more.Items(Tools)), notices)
	}
	list.Entries[len(list.Entries)-1] = json.RawMessage(`{"name":"long","inputSchema":{},"description":"` + strings.Repeat("x", MaxEntry+MaxEntry/2) + `"}`)
	if cut := start.Learn(s, Tools, list); len(cut.Items(Tools)) != len(list.Entries) {
		t.Errorf("an entry that is cut to fit: %d are offered", len(cut.Items(Tools)))
	}
	if n := len(start.Learn(s, Tools, List{Entries: []json.RawMessage{sized("t", MaxEntry+1)}}).Items(Tools)); n != 0 {
		t.Error("an entry of one byte more is offered")
	}
}

// A page of long entries has 4 MiB at most, and the pages together have all of them.
//
// Guarantees: G-0090.7, G-0090.9
func TestSizeOfAPage(t *testing.T) {
	start, s := alone()
	var list List
	for i := range 9 {
		list.Entries = append(list.Entries, sized(fmt.Sprintf("t%02d", i), MaxEntry-10))
	}
	known := start.Learn(s, Tools, list)
	var cursor *string
	for _, want := range []int{4, 4, 1} {
		page, next, err := known.Page(Tools, cursor, 100)
		if err != nil || len(page) != want || (next == nil) != (want == 1) {
			t.Fatalf("a page has %d entries, want %d; %v", len(page), want, err)
		}
		cursor = next
	}
}

// Brackets in a text are no depth.
//
// Guarantees: G-0090.9
func TestDepthOfAnEntry(t *testing.T) {
	for text, want := range map[string]int{
		`1`: 0, `"[[{"`: 0, `[1,2]`: 1, `[[],[],[]]`: 2, `[{},{},{}]`: 2, `["a",[[]]]`: 3, `["\\",[1]]`: 2, `["\"[[[",{}]`: 2, `{"[":"]","a":[{}]}`: 3,
		`{"a":{"b":{}},"c":{}}`: 3,
	} {
		if got := depth([]byte(text)); got != want {
			t.Errorf("%s has the depth %d, want %d", text, got, want)
		}
	}
}

// The file describes tools, also those that do not describe themselves.
//
// Guarantees: G-0090.8
func TestDescribedTools(t *testing.T) {
	files := Server{Name: "files", Describe: map[string]string{"a": "<one>", "b": "two"}}
	s := Empty().Apply(planned(files), []Server{files}).Learn(files, Tools, List{Entries: []json.RawMessage{
		json.RawMessage(`{"name":"a","inputSchema":{}}`), json.RawMessage(`{"name":"b","description":"old","inputSchema":{}}`), json.RawMessage(`{"name":"c","inputSchema":{}}`),
	}})
	for name, want := range map[string]string{
		"files__a": `{"description":"<one>","name":"files__a","inputSchema":{}}`,
		"files__b": `{"name":"files__b","description":"two","inputSchema":{}}`,
		"files__c": `{"name":"files__c","inputSchema":{}}`,
	} {
		if tool, _ := s.Find(Tools, name); string(tool.Raw) != want {
			t.Errorf("got %s, want %s", tool.Raw, want)
		}
	}
}

// What the file says of tools does not hold for prompts that are called the same. What a server lists twice, or what is no entry, is named.
//
// Guarantees: G-0090.8, G-0090.9
func TestWhatIsSaidOfALine(t *testing.T) {
	bare := ""
	of, other := Server{Name: "s", Rename: map[string]string{"a": "x"}, Describe: map[string]string{"a": "by the file"}}, Server{Name: "other"}
	plan, _ := names.Make(0, []names.Server{{Name: "s", Prefix: &bare}, {Name: "other"}})
	entries := func(all ...string) (list List) {
		for _, raw := range all {
			list.Entries = append(list.Entries, json.RawMessage(raw))
		}
		return list
	}
	s := Empty().Apply(plan, []Server{of, other}).
		Learn(of, Prompts, entries(`{"name":"a"}`, `{"name":"a","title":"again"}`, `5`)).Learn(of, Tools, entries(`{"name":"other__t","inputSchema":{}}`))
	if prompts := s.Items(Prompts); len(prompts) != 1 || string(prompts[0].Raw) != `{"name":"a"}` {
		t.Errorf("%+v", prompts)
	}
	equal(t, "notices", s.Notices("s"), []Notice{
		{"s", Tools, `"other__t" is hidden: names that begin so are those of another server`},
		{"s", Prompts, `"a" is listed twice: the first one counts`}, {"s", Prompts, "number 3 is left out: it is no JSON object"},
	})
	s = s.Learn(other, Tools, entries(`{"name":"t","inputSchema":{}}`)).Learn(other, Tools, entries(`5`, `{"name":"t","title":"new","inputSchema":{}}`))
	equal(t, "notices of a tool that has changed, in a list with a mistake", s.Notices("other"), []Notice{
		{"other", Tools, `"t" has changed since it was approved (title): see bowline pins`}, {"other", Tools, "number 1 is left out: it is no JSON object"},
	})
	long := strings.Repeat("n", 100)
	s = s.Learn(other, Tools, entries(`{"name":"`+long+`","inputSchema":{}}`))
	if n := len(s.Notices("other")); n != 1 {
		t.Errorf("%d notices of a name that is too long", n)
	}
	wide, _ := names.Make(names.MostMax, []names.Server{{Name: "s", Prefix: &bare}, {Name: "other"}})
	if s = s.Apply(wide, []Server{of, other}); len(s.Notices("other")) != 0 {
		t.Errorf("notices of a name that is not too long any more: %v", s.Notices("other"))
	}
	for _, c := range []struct {
		changed Changed
		want    string
	}{
		{Changed{Own: "t", Members: []Member{{"description", "", ""}, {"title", "", ""}}}, `"t" has changed since it was approved (description, title): see bowline pins`},
		{Changed{Own: "t", Members: []Member{{"title", "", ""}}, Held: true}, `"t" has changed since it was approved (title), and is not offered: see bowline pins`},
		{Changed{Own: "t", Unknown: true, Held: true}, `"t" waits for the cluster, which cannot be asked what it was, and is not offered`},
		{Changed{Own: "t", Unknown: true}, `"t" waits for the cluster, which cannot be asked what it was`},
	} {
		equal(t, "what has changed", c.changed.String(), c.want)
	}
}

// Who sees only a part does not find by a template what is written in another way than a policy would write it.
//
// Guarantees: G-0098.13
func TestAPartFindsPlainURIs(t *testing.T) {
	of := Server{Name: "s"}
	s := Empty().Apply(planned(of), []Server{of}).Learn(of, Templates, uris("uriTemplate", "x://{id}"))
	part := s.For(func(Kind, Item) bool { return true })
	for uri, want := range map[string]bool{"x://a": true, "x://%61": false} {
		_, whole := s.Resource(uri)
		if _, found := part.Resource(uri); !whole || found != want {
			t.Errorf("%s is found: %t in the whole, %t in a part", uri, whole, found)
		}
	}
}

// A URI that a server could take for another one is not plain.
//
// Guarantees: G-0098.13
func TestPlainURIs(t *testing.T) {
	for uri, want := range map[string]bool{
		"file:///a/b.txt?x=1#y": true, "file:///a%20b": true, "file:///a%2Fb": true, "a..b": true, "file:///%C3%A9": true, "file:///a%2520b": true,
		"file:///%41": false, "file:///%7a": false, "file:///%39": false, "file:///a%2db": false, "file:///a%5fb": false, "file:///a%7Eb": false,
		"file:///a/../b": false, "file:///a/./b": false, `file:///a\..\b`: false, "file:///a/..": false, "file:///a/%2e%2e/b": false, "file:///a%2F..%2Fb": false, "file:///a%252F..%252Fb": false,
		"file:///a%": false, "file:///a%4": false, "file:///a%zz": false, "file:///a%252525252525b": false,
	} {
		if got := IsPlain(uri); got != want {
			t.Errorf("%s: %v", uri, got)
		}
	}
}

// A description is cut between two characters, and notices quote 128 bytes.
//
// Guarantees: G-0090.9
func TestWhereTextsAreCut(t *testing.T) {
	start, s := alone()
	name := strings.Repeat("n", 200)
	entry := json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":{},"description":"x%s"}`, name, strings.Repeat("é", MaxDescription)))
	known := start.Learn(s, Tools, List{Entries: []json.RawMessage{entry}})
	var tool struct{ Description string }
	if err := json.Unmarshal(known.Items(Tools)[0].Raw, &tool); err != nil || tool.Description != "x"+strings.Repeat("é", MaxDescription/2-1) {
		t.Errorf("%v: %d bytes of the description are left", err, len(tool.Description))
	}
	before := start.Learn(s, Tools, List{Entries: []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"description":"x%s","name":"t","inputSchema":{}}`, strings.Repeat("é", MaxDescription)))}})
	if raw, want := string(before.Items(Tools)[0].Raw), fmt.Sprintf(`{"description":"x%s","name":"s__t","inputSchema":{}}`, strings.Repeat("é", MaxDescription/2-1)); raw != want {
		t.Errorf("one that describes itself first is offered as %.40s…%s", raw, raw[len(raw)-40:])
	}
	if text := known.Notices("s")[0].Text; !strings.Contains(text, `"`+name[:128]+`"...`) {
		t.Errorf("the notice is %s", text)
	}
	if got := beginning("\x80\x80", 1); got != "" {
		t.Errorf("a text without a beginning is cut to %q", got)
	}
}

// Whoever has a snapshot keeps what was in it.
//
// Guarantees: G-0090.5
func TestASnapshotDoesNotChange(t *testing.T) {
	start, s := alone()
	before := start.Learn(s, Tools, tools("t"))
	short := "short"
	plan, _ := names.Make(0, []names.Server{{Name: "s", Prefix: &short}})
	renamed, more := before.Apply(plan, []Server{s}), before.Learn(s, Prompts, tools("p"))
	for name, known := range map[string]*Snapshot{"s__t": before, "short__t": renamed} {
		equal(t, "the tools", called(known.Items(Tools)), []string{name})
		again := known.Learn(s, Prompts, List{}) // which reads the lists again
		equal(t, "the tools later", called(again.Apply(again.plan, []Server{s}).Items(Tools)), []string{name})
	}
	if len(before.Ages("s")) != 1 || len(more.Ages("s")) != 2 {
		t.Errorf("the lists have the ages %v, and later %v", before.Ages("s"), more.Ages("s"))
	}
	for i, e := range before.servers[0].lists[Tools].entries {
		if e.item.Name != before.Items(Tools)[i].Name {
			t.Errorf("the entry of the older snapshot is called %q", e.item.Name)
		}
	}
	blocks := Server{Name: "s", Pins: Block, Shared: true}
	of := Empty().Apply(planned(blocks), []Server{blocks}).Learn(blocks, Tools, tools("t"))
	of = of.Pin(blocks, of.Sums(blocks))
	of.Pin(blocks, map[string]string{"t": "what it was elsewhere"})
	if changed := of.Changed("s"); len(changed) != 0 {
		t.Errorf("by the pins of a later snapshot, %v", changed)
	}
}

// A list is another one if any member of an entry is.
//
// Guarantees: G-0090.5
func TestWhatIsAnotherList(t *testing.T) {
	start, s := alone()
	of := func(raw string) [32]byte {
		return start.Learn(s, Tools, List{Entries: []json.RawMessage{json.RawMessage(raw)}}).Digest(Tools)
	}
	if of(`{"name":"t","inputSchema":{}}`) == of(`{"name":"t","inputSchema":{"x":1}}`) {
		t.Error("another schema is no other list")
	}
	if of(`{"name":"t","inputSchema":{}}`) != of(`{ "name":"t", "inputSchema":{} }`) {
		t.Error("white space makes another list")
	}
}

// A server that has no names, because of a mistake, offers nothing, and of equal bare names one is offered.
//
// Guarantees: G-0090.3, G-0090.4
func TestWhoOffersNothing(t *testing.T) {
	a, b := Server{Name: "a b"}, Server{Name: "a.b"}
	known := Empty().Apply(planned(a, b), []Server{a, b}).Learn(b, Resources, uris("uri", "u:1")).Learn(b, Tools, tools("t"))
	if len(known.Items(Resources))+len(known.Items(Tools)) != 0 {
		t.Errorf("%v and %v are offered", known.Items(Resources), known.Items(Tools))
	}
	bare := ""
	plan, _ := names.Make(0, []names.Server{{Name: "a b", Prefix: &bare}, {Name: "a.b", Prefix: &bare}})
	known = Empty().Apply(plan, []Server{a, b}).Learn(a, Tools, tools("t")).Learn(b, Tools, tools("t", "u"))
	equal(t, "the bare names", called(known.Items(Tools)), []string{"t", "u"})
	c := Server{Name: "c"}
	known = Empty().Apply(planned(c), []Server{a, c}).Learn(a, Tools, tools("t")).Learn(c, Tools, tools("t"))
	equal(t, "tools behind a server without a place in the plan", called(known.Items(Tools)), []string{"c__t"})
}

// Of two tools of a server that the file calls the same the first is offered, and the other one is hidden by it.
func TestTwoToolsThatAreCalledTheSame(t *testing.T) {
	s := Server{Name: "s", Rename: map[string]string{"t": "same", "u": "same"}}
	known := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tools("t", "u"))
	equal(t, "tools", called(known.Items(Tools)), []string{"s__same"})
	if hidden := known.merged[Tools].hidden; len(hidden) != 1 || hidden[0].Own.Name != "u" {
		t.Errorf("%v are hidden, want u", hidden)
	}
}

// A server is there as long as the file has it, and runs the same.
func TestWhoIsThere(t *testing.T) {
	s := Server{Name: "s", Identity: "1"}
	known := Empty().Apply(planned(s), []Server{s})
	for of, there := range map[*Server]bool{&s: true, {Name: "s", Identity: "2"}: false, {Name: "o", Identity: "1"}: false} {
		if known.IsThere(*of) != there {
			t.Errorf("%v is there: %v", of, !there)
		}
	}
}

// Edges of patterns, templates and identities.
//
// Guarantees: G-0090.6, G-0090.10, G-0090.11
func TestEdgesOfPatterns(t *testing.T) {
	if (Filter{Allow: []string{"abc"}}).Offers("abd") {
		t.Error("a pattern without * offers another name of its length")
	}
	for text, want := range map[string]bool{
		strings.Repeat("a", longestTemplate): true, strings.Repeat("a", longestTemplate+1): false, "x{}": false, "x{a{b}": false, "x{a}": true, "x}": false,
	} {
		if _, err := compile(text); (err == nil) != want {
			t.Errorf("the template %.20q: %v", text, err)
		}
	}
	if IdentityOf(&streamable.Client{URL: "a"}) == IdentityOf(&streamable.Client{URL: "b"}) || IdentityOf(&sse.Client{URL: "a"}) == IdentityOf(&sse.Client{URL: "b"}) {
		t.Error("two URLs are one server")
	}
}

// What has not changed is not written again.
//
// Guarantees: G-0090.13
func TestTheFileIsWrittenOnlyIfSomethingHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.json")
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Name: "s"}
	c.Apply(planned(s), []Server{s})
	for i := range 2 {
		if err := c.Save(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != (i == 0) {
			t.Errorf("after saving %d times, with the file removed in between: %v", i+1, err)
		}
		os.Remove(path)
	}
}

// A name that nobody offers may be one of a server that has said nothing yet, if what the file says of it lets that be offered. Who does not see what it would be does not learn that.
//
// Guarantees: G-0088.24
func TestWhatANameMayMean(t *testing.T) {
	a, b := Server{Name: "a"}, Server{Name: "b", Rename: map[string]string{"old": "new"}, Filter: map[Kind]Filter{Tools: {Deny: []string{"no*"}}}}
	all := []Server{a, b}
	s := Empty().Apply(planned(all...), all).Learn(a, Tools, tools("t"))
	mean := func(s *Snapshot, kind Kind, name string) (own []string) {
		for _, item := range s.MayMean(kind, name) {
			own = append(own, item.Server+" "+item.Own)
		}
		return own
	}
	none := []string(nil)
	for name, want := range map[string][]string{
		"b__t": {"b t"}, "b__new": {"b old"}, "b__old": none, "b__not": none, "b__": none, "a__u": none, "t": none, "c__t": none,
	} {
		equal(t, name, mean(s, Tools, name), want)
	}
	equal(t, "a prompt", mean(s, Prompts, "a__old"), []string{"a old"})
	equal(t, "a prompt of a server that renames tools", mean(s, Prompts, "b__new"), []string{"b new"})
	if item := s.MayMean(Tools, "b__t")[0]; item.Name != "b__t" || item.Says != (Says{ReadOnly: true}) || item.Raw != nil {
		t.Errorf("what is known of it: %+v", item)
	}
	part := s.For(func(_ Kind, item Item) bool { return item.Own == "t" })
	equal(t, "what is seen", mean(part, Tools, "b__t"), []string{"b t"})
	equal(t, "what is hidden", mean(part, Tools, "b__u"), none)
	equal(t, "what is known", mean(s.Learn(b, Tools, tools("u")), Tools, "b__t"), none)
}

// Why a server has not said what it has is known until it says it, and of this server only. Nobody waits for it meanwhile.
//
// Guarantees: G-0088.24
func TestAServerThatFailsToSayWhatItHas(t *testing.T) {
	a, b := Server{Name: "a"}, Server{Name: "b"}
	all := []Server{a, b}
	full := errors.New("the disk is full")
	s := Empty().Apply(planned(all...), all)
	failed := s.Fail(a, Tools, full)
	equal(t, "awaited", failed.Awaited(Tools), []string{"b"})
	equal(t, "missing", failed.Missing(Tools), []string{"a", "b"})
	equal(t, "of another kind", failed.Awaited(Prompts), []string{"a", "b"})
	if failed.Failure("a", Tools) != full || failed.Failure("a", Prompts) != nil || failed.Failure("b", Tools) != nil || failed.Failure("nobody", Tools) != nil || s.Failure("a", Tools) != nil {
		t.Error("a failure is not that of its server and list")
	}
	if said := failed.Learn(a, Tools, tools("t")); said.Failure("a", Tools) != nil || said.Fail(a, Tools, full) != said {
		t.Error("a server that has said what it has fails to say it")
	}
	if failed.Fail(a, Prompts, full); failed.Failure("a", Prompts) != nil {
		t.Error("a snapshot has changed")
	}
	if failed.Fail(Server{Name: "a", Identity: "another"}, Tools, nil) != failed {
		t.Error("a server that is not there fails")
	}
	if again := failed.Apply(planned(all...), all); again.Failure("a", Tools) != full {
		t.Error("another file is read, and a failure of a server that stays is forgotten")
	}
	another := []Server{{Name: "a", Identity: "another"}, b}
	if again := failed.Apply(planned(another...), another); again.Failure("a", Tools) != nil {
		t.Error("a failure outlives its server")
	}
	if forgotten := failed.Forget(a); forgotten.Failure("a", Tools) != nil || forgotten.Forget(a) != forgotten || failed.Forget(b) != failed || failed.Forget(Server{Name: "c"}) != failed {
		t.Error("a failure is not forgotten, or another one is")
	}
}
