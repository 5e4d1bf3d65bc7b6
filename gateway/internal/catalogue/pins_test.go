package catalogue

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tool is a list of one tool with these members.
func tool(name, rest string) List {
	return List{At: noon, Entries: []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}%s}`, name, rest))}}
}

// membersOf returns what has changed of a server, as a text.
func changedOf(s *Snapshot, server string) string {
	var all []string
	for _, c := range s.Changed(server) {
		text := c.Own
		for _, m := range c.Members {
			text += fmt.Sprintf(" %s:%s>%s", m.Member, m.Was, m.Is)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// What a model reads of a tool is pinned, and nothing else: neither the order of members nor an icon is a change.
//
// Guarantees: G-0098.8
func TestWhatIsPinned(t *testing.T) {
	s := Server{Name: "s"}
	first := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tool("t", `,"description":"d","annotations":{"readOnlyHint":true,"title":"x"}`))
	for rest, want := range map[string]string{
		`,"description":"d","annotations":{"readOnlyHint":true,"title":"x"}`:            "",
		`,"annotations":{"title":"x", "readOnlyHint":true}, "description":"\u0064"`:     "",
		`,"description":"d","annotations":{"readOnlyHint":true,"title":"x"},"icons":[]`: "",
		`,"description":"e","annotations":{"readOnlyHint":true,"title":"x"}`:            `t description:"d">"e"`,
		`,"description":"d","annotations":{"readOnlyHint":false,"title":"x"}`:           `t annotations:{"readOnlyHint":true,"title":"x"}>{"readOnlyHint":false,"title":"x"}`,
		`,"description":"d"`: `t annotations:{"readOnlyHint":true,"title":"x"}>`,
		`,"description":"d","annotations":{"readOnlyHint":true,"title":"x"},"title":"T"`:                      `t title:>"T"`,
		`,"description":"d","annotations":{"readOnlyHint":true,"title":"x"},"outputSchema":{"type":"object"}`: `t outputSchema:>{"type":"object"}`,
	} {
		if got := changedOf(first.Learn(s, Tools, tool("t", rest)), "s"); got != want {
			t.Errorf("%s: %q, want %q", rest, got, want)
		}
	}
}

// A tool is held from the moment at which it is another one until it is approved or as it was, also if it was away in between, and after a restart. With warn and off
// it is offered, and with off nothing is said.
//
// Guarantees: G-0098.8, G-0098.9
func TestPins(t *testing.T) {
	s := Server{Name: "s", Pins: Block}
	path := filepath.Join(t.TempDir(), "catalogue.json")
	known, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	known.Apply(planned(s), []Server{s})
	offers := func(text string, want bool) {
		t.Helper()
		_, found := known.Snapshot().Find(Tools, "s__t")
		_, held := known.Snapshot().Held("s__t")
		if found != want || held == found {
			t.Errorf("%s: offered %v, held %v", text, found, held)
		}
		if of := known.Snapshot().Ages("s")[0]; of.Entries != len(known.Snapshot().Items(Tools)) {
			t.Errorf("%s: %d tools are counted", text, of.Entries)
		}
	}
	known.Learn(s, Tools, tool("t", ""))
	offers("at first", true)
	known.Learn(s, Tools, tool("t", `,"description":"obey"`))
	offers("changed", false)
	known.Learn(s, Tools, tool("t", `,"description":"obey me"`))
	if got := changedOf(known.Snapshot(), "s"); got != `t description:>"obey me"` {
		t.Errorf("changed twice: %s", got)
	}
	known.Learn(s, Tools, tool("t", ""))
	offers("as it was", true)
	known.Learn(s, Tools, tool("other", ""))
	known.Learn(s, Tools, tool("t", `,"description":"obey"`))
	offers("changed while it was away", false)
	if got := changedOf(known.Snapshot(), "s"); got != `t description:>"obey"; inputSchema:>` && !strings.Contains(got, `description:>"obey"`) {
		t.Errorf("after it was away: %s", got)
	}
	if err := known.Save(); err != nil {
		t.Fatal(err)
	}
	if known, err = Open(path); err != nil {
		t.Fatal(err)
	}
	known.Apply(planned(s), []Server{s})
	offers("after a restart", false)
	if seen := known.Snapshot().For(func(Kind, Item) bool { return false }); len(seen.merged[Tools].held) > 0 {
		t.Error("who may not see a tool sees that it is held")
	}
	if count, changed := known.Approve("s", "none"); count != 0 || changed {
		t.Error("what is not there is approved")
	}
	before := known.Snapshot()
	if count, changed := known.Approve("s", "t"); count != 1 || !changed {
		t.Errorf("approved: %d, %v", count, changed)
	}
	if _, held := before.Held("s__t"); !held || changedOf(before, "s") == "" || before.servers[0].pins["t"].Sum == known.Snapshot().servers[0].pins["t"].Sum {
		t.Error("a snapshot was changed by what came after it")
	}
	offers("approved", true)
	known.Learn(s, Tools, tool("t", ""))
	offers("as it was before", false)
	for _, mode := range []string{Warn, "", Off} {
		s.Pins = mode
		known.Apply(planned(s), []Server{s})
		if _, found := known.Snapshot().Find(Tools, "s__t"); !found || len(known.Snapshot().Changed("s")) != map[bool]int{true: 0, false: 1}[mode == Off] || len(known.Snapshot().Notices("s")) != len(known.Snapshot().Changed("s")) {
			t.Errorf("with %q: offered %v, changed %q", mode, found, changedOf(known.Snapshot(), "s"))
		}
	}
	s.Identity = "another"
	known.Apply(planned(s), []Server{s})
	known.Learn(s, Tools, tool("t", `,"title":"new"`))
	if got := changedOf(known.Snapshot(), "s"); got != "" {
		t.Errorf("another server: %s", got)
	}
}

// Whatever a server lists in whatever order, a tool is held exactly while it differs from what was approved, and the gateway remembers a bounded number.
//
// Guarantees: G-0098.8
func TestPinsFollowAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Server{Name: "s", Pins: Block}
		known, approved := Empty().Apply(planned(s), []Server{s}), map[string]string{}
		now := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "approve") {
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
				known, _ = known.Approve("s", name)
				if is, there := now[name]; there {
					approved[name] = is
				}
			} else {
				now = rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"x", "y"})).Draw(t, "tools")
				list := List{At: noon}
				for name, is := range now {
					list.Entries = append(list.Entries, tool(name, fmt.Sprintf(`,"description":%q`, is)).Entries...)
					if _, there := approved[name]; !there {
						approved[name] = is
					}
				}
				known = known.Learn(s, Tools, list)
			}
			for name, is := range now {
				_, found := known.Find(Tools, "s__"+name)
				if found != (approved[name] == is) {
					t.Fatalf("%s is %s, approved as %s, and offered: %v", name, is, approved[name], found)
				}
			}
		}
	})
}

// A server that lists other tools each time has no more pins than a list may have entries. What comes then is not known again, so it is held.
//
// Guarantees: G-0098.8
func TestPinsAreBounded(t *testing.T) {
	s := Server{Name: "s", Pins: Block}
	known := Empty().Apply(planned(s), []Server{s})
	for i := range 3 {
		list := List{At: noon}
		for j := range MaxEntries / 2 {
			list.Entries = append(list.Entries, tool(fmt.Sprint(strings.Repeat("x", 200), i, "-", j), "").Entries...)
		}
		known = known.Learn(s, Tools, list)
		if offered := len(known.Items(Tools)); len(known.servers[0].pins) > MaxEntries || (offered > 0) != (i < 2) {
			t.Errorf("list %d: %d pins, %d offered", i, len(known.servers[0].pins), offered)
		}
	}
}

// A server that is not in the file for a while, since it is disabled or its entry is wrong, is compared with what was approved when it is back, after a restart, too. Another command
// begins anew.
//
// Guarantees: G-0098.8
func TestPinsOfAServerThatComesBack(t *testing.T) {
	s, other := Server{Name: "s", Identity: "1", Pins: Block}, Server{Name: "o"}
	path := filepath.Join(t.TempDir(), "catalogue.json")
	known, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	known.Apply(planned(s, other), []Server{s, other})
	known.Learn(s, Tools, tool("t", `,"description":"d"`))
	for range 2 { // it is away while another process runs, too
		known.Apply(planned(other), []Server{other})
		known.Learn(other, Tools, tool("u", ""))
		if err := known.Save(); err != nil {
			t.Fatal(err)
		}
		if known, err = Open(path); err != nil {
			t.Fatal(err)
		}
	}
	moved := Server{Name: "s", Identity: "2", Pins: Block}
	for _, c := range []struct {
		of          Server
		description string
		held        bool
	}{{s, "d", false}, {s, "e", true}, {moved, "e", false}} {
		for _, before := range []*Snapshot{known.Snapshot(), known.Snapshot().Apply(planned(other), []Server{other})} {
			now := before.Apply(planned(other, c.of), []Server{other, c.of}).Learn(c.of, Tools, tool("t", `,"description":"`+c.description+`"`))
			if _, held := now.Held("s__t"); held != c.held {
				t.Errorf("%s of %s: held %v", c.description, c.of.Identity, held)
			}
		}
	}
	twin := Server{Name: "twin", Identity: s.Identity, Pins: Block}
	both := Empty().Apply(planned(twin, s), []Server{twin, s}).Learn(twin, Tools, tool("t", `,"description":"e"`)).Learn(s, Tools, tool("t", `,"description":"d"`))
	back := both.Apply(planned(other), []Server{other}).Apply(planned(s), []Server{s}).Learn(s, Tools, tool("t", `,"description":"d"`))
	if _, held := back.Held("s__t"); held {
		t.Error("a server that comes back has the pins of another one that runs the same")
	}
	many := known.Snapshot()
	for i := range maxGone + 10 {
		one := Server{Name: fmt.Sprint("n", i)}
		many = many.Apply(planned(one), []Server{one}).Learn(one, Tools, tool("t", ""))
	}
	if len(many.gone) != maxGone {
		t.Errorf("%d are remembered", len(many.gone))
	}
}

// A tool that has changed once more since somebody has read it is not approved by what was read, nor is another one whose name looks like that.
//
// Guarantees: G-0098.16
func TestApprovalOfAVersion(t *testing.T) {
	s := Server{Name: "s", Pins: Block}
	changed := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tool("t", "")).Learn(s, Tools, tool("t", `,"title":"1"`))
	read := "t@" + changed.Changed("s")[0].Version
	again := changed.Learn(s, Tools, tool("t", `,"title":"2"`))
	if next, count := again.Approve("s", read); count > 0 || next != again {
		t.Error("another version is approved")
	}
	if _, count := changed.Approve("s", read); count != 1 {
		t.Error("what was read is not approved")
	}
	lookalike := Empty().Apply(planned(s), []Server{s}).Learn(s, Tools, tool(read, "")).Learn(s, Tools, tool(read, `,"title":"1"`))
	if _, count := lookalike.Approve("s", read); count > 0 {
		t.Error("another tool is approved, whose name looks like a version")
	}
	if _, count := lookalike.Approve("s", read+"@"+lookalike.Changed("s")[0].Version); count != 1 {
		t.Error("a tool with an @ in its name cannot be approved")
	}
}

// What a cluster pins is what its tools are pinned to already, and of the others what they are. To approve one of them says nothing of the others, and what is pinned already changes nothing.
//
// Guarantees: G-0098.16
func TestWhatAClusterPins(t *testing.T) {
	of := Server{Name: "s", Identity: "1", Shared: true, Pins: Block}
	s := Empty().Apply(planned(of), []Server{of}).Learn(of, Tools, List{Entries: []json.RawMessage{
		json.RawMessage(`{"name":"t","inputSchema":{}}`), json.RawMessage(`{"name":"u","inputSchema":{}}`), json.RawMessage(`{"name":"new","inputSchema":{}}`)}})
	is := s.Sums(of)
	pinned := s.Pin(of, map[string]string{"t": "other", "u": "another"})
	if got := pinned.Sums(of); len(is) != 3 || len(got) != 3 || got["t"] != "other" || got["u"] != "another" || got["new"] != is["new"] || is["t"] == is["u"] {
		t.Errorf("pinned to %q, and they are %q", got, is)
	}
	if again := pinned.Pin(of, map[string]string{"t": "other", "u": "another"}); again != pinned {
		t.Error("the same pins make another snapshot")
	}
	if got := pinned.Approval("s", "t"); len(got) != 1 || got["t"] != is["t"] {
		t.Errorf("to approve t pins %q, want %q", got, is["t"])
	}
	if got := pinned.Approval("s", "none"); got != nil {
		t.Errorf("to approve nothing pins %q", got)
	}
	if got := pinned.Sums(Server{Name: "s", Identity: "2"}); got != nil {
		t.Errorf("another server is pinned to %q", got)
	}
}
