package nodename_test

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/nodename"
)

var longest = strings.Repeat("a", nodename.Longest)

func TestNames(t *testing.T) {
	for _, name := range []string{"", "az", "AZ", "09", "a-b_c", longest} {
		if err := nodename.Check(name); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for _, name := range []string{"a.b", "a b", "é", "`", "{", "@", "[", "/", ":", "\xff", "a\x00", longest + "a"} {
		if nodename.Check(name) == nil {
			t.Errorf("%.20q is accepted as the name of a node, want an error", name)
		}
	}
}

func TestNodeOfAText(t *testing.T) {
	for text, want := range map[string]string{
		nodename.Join("a", "x"): "a", nodename.Join("", "x"): "", nodename.Join(longest, "x"): longest,
		"a.": "a", "a.b.c": "a", "": "", ".": "", ".x": "", "x": "",
		longest + "a.x": "", longest + "." + strings.Repeat("x", 1<<20): longest,
		"a b.x": "", "é.x": "", "a/../b.x": "", "a\x00.x": "", " a.x": "", strings.Repeat("a", 1<<20): "",
	} {
		if got := nodename.Of(text); got != want {
			t.Errorf("%.80q names the node %q, want %q", text, got, want)
		}
		if got := nodename.OfState(nodename.StateVersion + text); got != want {
			t.Errorf("the state of %.80q names the node %q, want %q", text, got, want)
		}
		if got := nodename.OfState("2." + text); got != "" {
			t.Errorf("a state of an unknown version names the node %q, want none", got)
		}
	}
}

// Whatever a client sends, a node that it names has a permitted name, and joining it with
// the rest gives the text again.
func FuzzNodeOfAText(f *testing.F) {
	for _, text := range []string{"a.x", "1.a.x", "..", "a\xff.x", longest + ".x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := nodename.Of(text)
		if err := nodename.Check(name); err != nil {
			t.Fatal(err)
		}
		if name == "" {
			return
		}
		if rest := text[len(name)+len(nodename.Mark):]; nodename.Join(name, rest) != text {
			t.Fatalf("%q names the node %q before %q", text, name, rest)
		}
	})
}
