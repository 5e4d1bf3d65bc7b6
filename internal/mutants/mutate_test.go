package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changesOf lists what is changed in a file that holds this text, without the
// folder.
func changesOf(t *testing.T, text string) []string {
	t.Helper()
	name := filepath.ToSlash(filepath.Join(t.TempDir(), "a.go"))
	if err := os.WriteFile(name, []byte("package a\n\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := readFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, m := range (&pkg{files: []*file{f}}).mutants() {
		changes = append(changes, strings.TrimPrefix(m.name, path.Dir(name)+" "))
	}
	return changes
}

func TestWhatIsChanged(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"comparison": {
			`func less(a, b int) bool { return a < b }`,
			[]string{"less: a < b => a <= b", "less: a < b => a >= b"},
		},
		"condition": {
			"func both(a, b bool) bool { return a && // so\n!b }",
			[]string{"both: a && !b => a || !b", "both: a && !b => a", "both: a && !b => !b", "both: !b => b"},
		},
		"either": {
			`func either(a, b bool) bool { return a || b }`,
			[]string{"either: a || b => a && b", "either: a || b => a", "either: a || b => b"},
		},
		"constant": {`func no() (int, bool) { return 0, false }`, []string{"no: return 0, false => return 0, true"}},
		"constants": {
			`func set() { on = true; f(x, false); v := T{true: false, min: max}; return }`,
			[]string{
				"set: remove on = true", "set: remove f(x, false)", "set: remove return",
				"set: on = true => on = false", "set: f(x, false) => f(x, true)", "set: true: false => true: true",
			},
		},
		"arithmetic": {`func sum(a, b int) int { return max(a+b, -a) }`, []string{"sum: max(a+b, -a) => min(a+b, -a)", "sum: a+b => a-b", "sum: -a => a"}},
		"statements": {
			`func (c *core[T]) step() { n := 0; n += 1; c.n++; c.emit(); if n := 1; n == 2 { return } }`,
			[]string{
				"core.step: remove n += 1", "core.step: remove c.n++", "core.step: remove c.emit()",
				"core.step: n += 1 => n -= 1", "core.step: n += 1 => n = 1", "core.step: c.n++ => c.n--",
				"core.step: n == 2 => n != 2", "core.step: remove return",
			},
		},
		"loop": {
			`func (core) loop() { for { break }; switch { case true: continue } }`,
			[]string{"core.loop: remove break", "core.loop: break => continue", "core.loop: remove continue", "core.loop: continue => break"},
		},
		"the same change twice": {
			`func twice() { f(); f() }`,
			[]string{"twice: remove f()", "twice: remove f() (2)"},
		},
		"nothing to change": {`func f(); var v = 1 < 2; func g() int { v := 1; return v }`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, changesOf(t, c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of all mutants a part is judged, which does not depend on changes elsewhere, and of files that
// were touched so many as are asked for.
func TestWhatIsJudged(t *testing.T) {
	var text strings.Builder
	text.WriteString("package small\n")
	for i := range 60 {
		fmt.Fprintf(&text, "\nfunc difference%d(a, b int) int { return a - b }\n", i)
	}
	files := map[string]string{"go.mod": small["go.mod"], "a.go": text.String(), "b.go": small["pure.go"]}
	drawn := func(o options) (judged []string) {
		writeModule(t, files)
		p, err := load(t.Context(), ".")
		if err != nil {
			t.Fatal(err)
		}
		all := p.mutants()
		taken, left := sample(all, &o)
		if len(taken)+len(left) != len(all) {
			t.Errorf("%d mutants are judged and %d left out, of %d", len(taken), len(left), len(all))
		}
		for _, m := range taken {
			if m.file.name == "./a.go" {
				judged = append(judged, m.name)
			}
		}
		return judged
	}
	if all := drawn(options{part: 1}); len(all) != 60 {
		t.Errorf("%d mutants of the file, of 60", len(all))
	}
	third := drawn(options{part: 3})
	if len(third) < 8 || len(third) > 40 {
		t.Errorf("%d mutants of 60 are a third", len(third))
	}
	if touched := drawn(options{part: 3, touched: []string{"./a.go"}, most: 100}); len(touched) != 60 {
		t.Errorf("%d mutants of a touched file, of 60", len(touched))
	}
	if most := drawn(options{part: 1000000, touched: []string{"./a.go"}, most: 7}); len(most) != 7 {
		t.Errorf("%d mutants of a touched file, of at most 7", len(most))
	}
	if one := drawn(options{part: 1, only: regexp.MustCompile("difference7:")}); len(one) != 1 {
		t.Errorf("only one is asked for, and %q are judged", one)
	}
	files["a.go"] = strings.Replace(text.String(), "small\n", "small\n\nvar first = 1\n", 1)
	if moved := drawn(options{part: 3}); !slices.Equal(moved, third) {
		t.Errorf("after an edit elsewhere these are judged: %q, and before: %q", moved, third)
	}
}
