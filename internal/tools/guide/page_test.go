package guide

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "copy the code anew into the pages of docs/guide")

const root = "../../.."

const program = `// Program is an example.
package main

// A Box holds things.
type Box struct{ Size int }

// Close closes it.
func (b *Box) Close() {}

func main() { println("hello") }
`

func TestUpdateCopiesDeclarations(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, fixture := range []struct{ name, page, want, fails string }{
		{name: "a page without code", page: "# Page\n", want: "# Page\n"},
		{
			name: "declarations, in the order of the comment",
			page: "<!-- code: main.go main Box Box.Close -->\n```go\nold\n```\nafter\n",
			want: "<!-- code: main.go main Box Box.Close -->\n```go\nfunc main() { println(\"hello\") }\n\n// A Box holds things.\ntype Box struct{ Size int }\n\n" +
				"// Close closes it.\nfunc (b *Box) Close() {}\n```\nafter\n",
		},
		{
			name: "a whole file",
			page: "<!-- code: main.go -->\n```go\n```\n",
			want: "<!-- code: main.go -->\n```go\n" + program + "```\n",
		},
		{name: "code from nowhere", page: "text\n```go\n```\n", fails: "line 2: no comment"},
		{name: "a comment without code", page: "<!-- code: main.go main -->\ntext\n", fails: "line 1: no block"},
		{name: "a block without end", page: "<!-- code: main.go main -->\n```go\ntext\n", fails: "line 1: no block"},
		{name: "no such function", page: "<!-- code: main.go gone -->\n```go\n```\n", fails: "declares no gone"},
		{name: "no such file", page: "<!-- code: gone.go -->\n```go\n```\n", fails: "gone.go"},
		{name: "no file at all", page: "<!-- code: -->\n```go\n```\n", fails: "line 1"},
	} {
		t.Run(fixture.name, func(t *testing.T) {
			got, err := Update(root, fixture.page)
			if fixture.fails != "" {
				if err == nil || !strings.Contains(err.Error(), fixture.fails) {
					t.Errorf("failed with %v, want %q", err, fixture.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(fixture.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestConsoles(t *testing.T) {
	page := "text\n$ not a command\n```console\n$ first \\\n>   more\nout\n$ second\nput\n```\n```\n$ no\n```\n"
	want := []Console{{Line: 3, Commands: "first \\\n  more\nsecond\n", Output: "out\nput\n"}}
	if difference := cmp.Diff(want, Consoles(page)); difference != "" {
		t.Error(difference)
	}
}

func TestMatches(t *testing.T) {
	for _, fixture := range []struct {
		shown, output string
		want          bool
	}{
		{"a\nb\n", "a\nb", true},
		{"a", "a\nb", false},
		{"a…c", "abc", true},
		{"a…c…e", "abcde", true},
		{"a…c…e", "abde", false},
		{"…", "", true},
		{"a…a", "a", false},
		{"ab", "abc", false},
		{"abc", "ab", false},
	} {
		if got := Matches(fixture.shown, fixture.output); got != fixture.want {
			t.Errorf("Matches(%q, %q) = %v", fixture.shown, fixture.output, got)
		}
	}
}
