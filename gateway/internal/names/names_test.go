package names

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func bare() *string { return new(string) }

func prefix(text string) *string { return &text }

// plan makes a plan without problems.
func plan(t interface{ Fatalf(string, ...any) }, longest int, servers ...Server) *Plan {
	p, problems := Make(longest, servers)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	return p
}

// A name is the server's, two underscores, and the tool's. What clients may refuse is replaced, and what is too long is
// cut, with eight digits of SHA-256 so that two names that differ still do.
//
// Guarantees: G-0090.1
func TestNamesAreWhatClientsAccept(t *testing.T) {
	long := strings.Repeat("a", 60)
	p := plan(t, 0, Server{Name: "files"}, Server{Name: "git.hub!"}, Server{Name: long}, Server{Name: "日本"},
		Server{Name: "plain", Prefix: bare()}, Server{Name: "renamed", Prefix: prefix("short")})
	for _, c := range []struct{ server, own, name, notice string }{
		{"files", "read", "files__read", ""},
		{"files", "__read", "files____read", ""},
		{"git.hub!", "issue", "git_hub__issue", ""},
		{"files", "a.b", "files__a_b_" + digest("a.b"), "characters"},
		{"files", "a/b", "files__a_b_" + digest("a/b"), "characters"},
		{"files", long, "files__" + long[:32] + "_" + digest(long), "too long"},
		{"files", long[:41], "files__" + long[:41], ""},
		{long, "read", long[:27] + "_" + digest(long) + "__read", ""},
		{long, "readeverything", long[:27] + "_" + digest(long) + "__r_" + digest("readeverything"), "too long"},
		{"日本", "read", digest("日本") + "__read", ""},
		{"plain", "read", "read", ""},
		{"plain", "a b", "a_b_" + digest("a b"), "characters"},
		{"renamed", "read", "short__read", ""},
		{"files", "", "", ""},
		{"nobody", "read", "", ""},
	} {
		name, notice := p.Name(c.server, c.own)
		if name != c.name || (notice == "") != (c.notice == "") || !strings.Contains(notice, c.notice) {
			t.Errorf("%s of %s: got %q, notice %q; want %q, %q", c.own, c.server, name, notice, c.name, c.notice)
		}
	}
}

// With a negative maximum every tool keeps its name, and a server its prefix. Names are still unique.
//
// Guarantees: G-0090.14
func TestNamesThatAreKept(t *testing.T) {
	long := strings.Repeat("a", 300)
	p := plan(t, -1, Server{Name: "git.hub"}, Server{Name: "plain", Prefix: bare()}, Server{Name: "too", Prefix: bare()})
	var all []Own
	for _, own := range []string{"a.b/c", "a b", "日本", "_", long, long + "a", "a_b_c_" + digest("a.b/c")} {
		for server, prefix := range map[string]string{"git.hub": "git_hub__", "plain": ""} {
			if name, notice := p.Name(server, own); name != prefix+own || notice != "" {
				t.Errorf("%.20q of %s is called %.20q, with the notice %q", own, server, name, notice)
			}
			all = append(all, Own{server, own})
		}
	}
	table := p.Table(append(all, Own{"too", "a b"}, Own{"plain", "git_hub__a b"}, Own{"plain", ""}))
	for _, own := range all {
		if name, ok := nameOf(table, own); !ok || len(table.Hidden()) != 2 {
			t.Errorf("%.20q of %s has the name %.20q, and hidden are %v", own.Name, own.Server, name, table.Hidden())
		}
	}
}

// Which server may have a name follows from the file: the one with which it begins, or else those with bare names.
//
// Guarantees: G-0090.2
func TestWhoMayHaveAName(t *testing.T) {
	p := plan(t, 0, Server{Name: "git.hub"}, Server{Name: "plain", Prefix: bare()}, Server{Name: "short", Prefix: prefix("s")})
	for _, c := range []struct {
		server, name, own string
		could             bool
	}{
		{"git.hub", "git_hub__issue", "issue", true}, {"git.hub", "git_hub__a__b", "a__b", true}, {"git.hub", "git_hub__", "", false}, {"git.hub", "issue", "", false},
		{"git.hub", "s__issue", "", false}, {"short", "s__issue", "issue", true}, {"short", "short__issue", "", false},
		{"plain", "issue", "issue", true}, {"plain", "other__issue", "other__issue", true}, {"plain", "s__issue", "", false}, {"plain", "s", "s", true}, {"plain", "", "", false},
		{"nobody", "issue", "", false},
	} {
		if own, could := p.Own(c.server, c.name); could != c.could || could && own != c.own {
			t.Errorf("%q of %s: %q, %t", c.name, c.server, own, could)
		}
	}
}

// A key with __ in it, and keys that look alike in names, are mistakes of the file. The first of two has the names.
//
// Guarantees: G-0090.3
func TestMistakesInTheNamesOfServers(t *testing.T) {
	p, problems := Make(0, []Server{
		{Name: "a__b"}, {Name: "git hub"}, {Name: "git.hub"}, {Name: "x"}, {Name: "x_"}, {Name: "y", Prefix: prefix("x")},
		{Name: "z", Prefix: prefix("q__")}, {Name: "bare", Prefix: bare()}, {Name: "bare too", Prefix: bare()},
	})
	got := map[string]string{}
	for _, problem := range problems {
		got[problem.Server] = problem.Message
	}
	for server, want := range map[string]string{
		"a__b": "the name contains __", "git.hub": `as those of "git hub", which begin with git_hub__`, "x_": `those of "x"`, "y": `those of "x"`,
		"z": "the prefix contains __",
	} {
		if !strings.Contains(got[server], want) {
			t.Errorf("%s: got %q, want %q", server, got[server], want)
		}
		delete(got, server)
	}
	if len(got) > 0 {
		t.Errorf("more problems: %v", got)
	}
	if first, _ := p.Name("git hub", "t"); first != "git_hub__t" {
		t.Errorf("the first has the name %q", first)
	}
	if second, _ := p.Name("git.hub", "t"); second != "" {
		t.Errorf("the second has the name %q, too", second)
	}
}

// The first server of the file has a bare name, and who is hidden by whom is known. A bare name never takes one that
// begins with its server.
//
// Guarantees: G-0090.4
func TestEqualBareNames(t *testing.T) {
	p := plan(t, 0, Server{Name: "first", Prefix: bare()}, Server{Name: "second", Prefix: bare()}, Server{Name: "files"})
	taken, read := Own{"first", "files__read"}, Own{"files", "read"}
	table := p.Table([]Own{{"second", "t"}, taken, {"first", "t"}, {"second", "u"}, read, read})
	if own, ok := table.Own("t"); !ok || own != (Own{"first", "t"}) {
		t.Errorf("t is %v", own)
	}
	if own, _ := table.Own("files__read"); own != read {
		t.Errorf("files__read is %v", own)
	}
	if name, ok := nameOf(table, Own{"second", "t"}); ok {
		t.Errorf("the hidden one is called %q", name)
	}
	want := []Hidden{{taken, "files__read", read}, {Own{"second", "t"}, "t", Own{"first", "t"}}}
	if diff := cmp.Diff(want, table.Hidden()); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
}

// A bare name that begins as those of another server is offered by nobody, also while that server offers nothing.
//
// Guarantees: G-0090.2
func TestBareNameOfAServerThatIsAway(t *testing.T) {
	p := plan(t, 0, Server{Name: "first", Prefix: bare()}, Server{Name: "files"})
	imitation, other := Own{"first", "files__write"}, Own{"first", "file__write"}
	table := p.Table([]Own{imitation, other})
	if own, ok := table.Own("files__write"); ok {
		t.Errorf("files__write is %v", own)
	}
	if own, ok := table.Own("file__write"); !ok || own != other {
		t.Errorf("file__write is %v", own)
	}
	if diff := cmp.Diff([]Hidden{{imitation, "files__write", Own{}}}, table.Hidden()); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
}

// A tool that calls itself what another is offered as loses, wherever it stands in the list: the one whose own name
// was changed comes second, and both orders give the same table.
//
// Guarantees: G-0090.2
func TestAToolThatImitatesAChangedName(t *testing.T) {
	p := plan(t, 0, Server{Name: "s"})
	odd, imitation := Own{"s", "x.y"}, Own{"s", "x_y_" + digest("x.y")}
	for _, order := range [][]Own{{odd, imitation}, {imitation, odd}} {
		table := p.Table(order)
		if own, _ := table.Own("s__" + imitation.Name); own != imitation || len(table.Hidden()) != 1 {
			t.Errorf("%v has the name, and %d are hidden", own, len(table.Hidden()))
		}
	}
}

var offered = regexp.MustCompile(`\A[A-Za-z0-9_-]+\z`)

func serverNames() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[ab_. -]{1,4}`), rapid.StringN(1, 80, -1))
}

func ownNames() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[ab_./-]{0,5}`), rapid.StringN(0, 200, -1), rapid.StringMatching(`[ab]{30,50}`))
}

// Whatever servers and tools are called: names have the form and the length, each has one owner, which has that name,
// and a name stays the same when other servers and tools come and go.
//
// Guarantees: G-0090.1, G-0090.2
func TestNamesAreUniqueAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		longest := rapid.SampledFrom([]int{0, LeastMax, 48, MostMax}).Draw(t, "longest")
		servers := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Server {
			return Server{Name: serverNames().Draw(t, "server"), Prefix: rapid.SampledFrom([]*string{nil, nil, bare()}).Draw(t, "prefix")}
		}), 1, 6, func(s Server) string { return s.Name }).Draw(t, "servers")
		p, _ := Make(longest, servers)
		all := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) Own {
			return Own{rapid.SampledFrom(servers).Draw(t, "of").Name, ownNames().Draw(t, "own")}
		}), rapid.ID[Own]).Draw(t, "all")
		table := p.Table(all)
		checkTable(t, p, table, all)
		alone := plan(t, longest, cleanOnly(servers[:1])...)
		for _, own := range all {
			name, _ := p.Name(own.Server, own.Name)
			if again, _ := alone.Name(own.Server, own.Name); again != "" && again != name {
				t.Fatalf("%v is %q, and %q without the others", own, name, again)
			}
		}
	})
}

// cleanOnly leaves out what would be a problem.
func cleanOnly(servers []Server) []Server {
	if _, problems := Make(0, servers); len(problems) > 0 {
		return nil
	}
	return servers
}

// nameOf returns what clients call a thing; ok is false if it is not offered.
func nameOf(table *Table, own Own) (name string, ok bool) {
	for name, owner := range table.owners {
		if owner == own {
			return name, true
		}
	}
	return "", false
}

func checkTable(t *rapid.T, p *Plan, table *Table, all []Own) {
	hidden := map[Own]bool{}
	for _, h := range table.Hidden() {
		hidden[h.Own] = true
		if owner, _ := table.Own(h.Advertised); owner != h.By {
			t.Fatalf("%v is hidden by %v, and %v has the name", h.Own, h.By, owner)
		}
	}
	seen := map[string]Own{}
	for _, own := range all {
		planned, _ := p.Name(own.Server, own.Name)
		name, ok := nameOf(table, own)
		if ok == (planned == "" || hidden[own]) {
			t.Fatalf("%v is planned as %q, hidden %v, offered %v", own, planned, hidden[own], ok)
		}
		if !ok {
			continue
		}
		if other, twice := seen[name]; twice {
			t.Fatalf("%v and %v are both called %q", own, other, name)
		}
		seen[name] = own
		if back, _ := table.Own(name); back != own || name != planned || !offered.MatchString(name) || len(name) > p.max {
			t.Fatalf("%v is called %q (%d bytes), planned as %q, which means %v", own, name, len(name), planned, back)
		}
	}
}

// With prefixes, no tool of one server can have a name of another, whatever both are called.
//
// Guarantees: G-0090.2
func TestNoServerTakesANameOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := serverNames().Draw(t, "a"), serverNames().Draw(t, "b")
		p, problems := Make(rapid.SampledFrom([]int{LeastMax, 48}).Draw(t, "longest"), []Server{{Name: a}, {Name: b}})
		if a == b || len(problems) > 0 {
			return
		}
		first, _ := p.Name(a, ownNames().Filter(func(s string) bool { return s != "" }).Draw(t, "x"))
		second, _ := p.Name(b, ownNames().Filter(func(s string) bool { return s != "" }).Draw(t, "y"))
		if first == second {
			t.Fatalf("%q and %q both have a tool %q", a, b, first)
		}
	})
}

// FuzzNames gives both names any text.
//
// Guarantees: G-0090.1
func FuzzNames(f *testing.F) {
	f.Add("files", "read_file", 0)
	f.Add("__", "\x00", 32)
	f.Add("日本", strings.Repeat("é", 100), 200)
	f.Add(strings.Repeat("_a", 60), "_", -1)
	f.Fuzz(func(t *testing.T, server, own string, longest int) {
		p, _ := Make(longest, []Server{{Name: server}})
		name, _ := p.Name(server, own)
		if (own == "") != (name == "") {
			t.Fatalf("%q of %q is called %q", own, server, name)
		}
		isKept, isOffered := strings.HasSuffix(name, own), offered.MatchString(name) && len(name) <= MostMax
		if name != "" && (longest < 0 && !isKept || longest >= 0 && !isOffered) {
			t.Fatalf("%q of %q is called %q", own, server, name)
		}
	})
}
