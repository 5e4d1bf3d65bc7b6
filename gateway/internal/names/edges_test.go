package names

import (
	"strings"
	"testing"
)

// What is just allowed stays as it is, and what is just beyond does not.
//
// Guarantees: G-0090.1
func TestEdgesOfNames(t *testing.T) {
	p := plan(t, 0, Server{Name: "files"})
	if name, notice := p.Name("files", "azAZ09_-"); name != "files__azAZ09_-" || notice != "" {
		t.Errorf("got %q, %q", name, notice)
	}
	for _, c := range "`{@[/:.,^\x7fé" {
		if name, notice := p.Name("files", string(c)); name != "files___"+"_"+digest(string(c)) || notice == "" {
			t.Errorf("%q is called %q, with the notice %q", c, name, notice)
		}
	}
	for longest, want := range map[int]int{0: DefaultMax, 1: LeastMax, LeastMax: LeastMax, 77: 77, MostMax: MostMax, MostMax + 1: MostMax, 9999: MostMax} {
		p := plan(t, longest, Server{Name: "files"})
		fits := strings.Repeat("a", want-len("files__"))
		if name, notice := p.Name("files", fits); name != "files__"+fits || notice != "" {
			t.Errorf("maxName %d: %q is called %q, with the notice %q", longest, fits, name, notice)
		}
		if name, notice := p.Name("files", fits+"a"); len(name) != want || !strings.HasSuffix(name, "_"+digest(fits+"a")) || notice == "" {
			t.Errorf("maxName %d: one byte more is called %q, with the notice %q", longest, name, notice)
		}
	}
	fits := strings.Repeat("k", DefaultMax-tail-leastOwn)
	if key, _ := plan(t, 0, Server{Name: fits}).Key(fits); key != fits {
		t.Errorf("the longest key became %q", key)
	}
	if key, _ := plan(t, 0, Server{Name: fits + "k"}).Key(fits + "k"); key != fits[:len(fits)-tail]+"_"+digest(fits+"k") {
		t.Errorf("one byte more became %q", key)
	}
	// Two that differ only in what is replaced still do, and a file without a bound has none for the part of a server.
	plan(t, 0, Server{Name: fits + "ék"}, Server{Name: fits + "ük"})
	long := strings.Repeat("k", 2*MostMax)
	if key, _ := plan(t, -1, Server{Name: long}).Key(long); len(key) != MostMax-tail-leastOwn {
		t.Errorf("where names are kept, the part of a server is %q", key)
	}
}

// The key of a server is known if it has names.
//
// Guarantees: G-0090.1
func TestKeysOfServers(t *testing.T) {
	p, _ := Make(0, []Server{{Name: "git.hub"}, {Name: "plain", Prefix: bare()}, {Name: "git hub"}, {Name: "git__hub"}, {Name: "a///b"}})
	for name, want := range map[string]struct {
		key string
		ok  bool
	}{"git.hub": {"git_hub", true}, "plain": {"", true}, "git hub": {"", false}, "git__hub": {"", false}, "a///b": {"a_b", true}, "nobody": {"", false}} {
		if key, ok := p.Key(name); key != want.key || ok != want.ok {
			t.Errorf("%s: got %q, %v", name, key, ok)
		}
	}
}

// A server with two mistakes is told of the one in its own name. Messages quote 256 bytes of what others have written.
//
// Guarantees: G-0090.3
func TestMessagesAboutNames(t *testing.T) {
	_, problems := Make(0, []Server{{Name: "x"}, {Name: "x__"}})
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "contains __") {
		t.Errorf("got %v", problems)
	}
	long := strings.Repeat("n", 300)
	p, problems := Make(0, []Server{{Name: long}, {Name: "other", Prefix: prefix(long)}})
	_, notice := p.Name(long, long)
	for _, message := range []string{problems[0].Message, notice} {
		if !strings.Contains(message, `"`+long[:256]+`"...`) {
			t.Errorf("%q does not quote 256 bytes", message)
		}
	}
	for text, want := range map[string]string{"abc": `"abc"`, "abcd": `"abc"...`, "ab\n": `"ab\n"`, "abé": `"ab"...`} {
		if got := Quote(text, 3); got != want {
			t.Errorf("%q is quoted as %s", text, got)
		}
	}
}
