package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
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
	f, _, err := readFile(name)
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

// Of files that are not pure, a sample of the mutants is judged. It does not depend on
// changes elsewhere in the file.
func TestFilesBesideThePureOnesAreSampled(t *testing.T) {
	var impure strings.Builder
	impure.WriteString("package small\n")
	for i := range 60 {
		fmt.Fprintf(&impure, "\nfunc difference%d(a, b int) int { return a - b }\n", i)
	}
	files := maps.Clone(small)
	files["impure.go"] = impure.String()
	writeModule(t, files)
	drawn := func(also []string, of int) (pure int, sampled []string) {
		p, err := load(t.Context(), ".", also)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sample(p.mutants(), of, 1) {
			if strings.HasSuffix(m.file.name, "/impure.go") {
				sampled = append(sampled, m.name)
			} else {
				pure++
			}
		}
		return pure, sampled
	}
	pure, none := drawn(nil, 3)
	if len(none) > 0 {
		t.Errorf("%d mutants of a file that was not named", len(none))
	}
	also := []string{"./impure.go"}
	if _, all := drawn(also, 1); len(all) != 60 {
		t.Errorf("%d mutants of the file, of 60", len(all))
	}
	again, third := drawn(also, 3)
	if again != pure || len(third) < 8 || len(third) > 40 {
		t.Errorf("%d mutants of the pure file, of %d, and %d of 60 of the other", again, pure, len(third))
	}
	files["impure.go"] = strings.Replace(impure.String(), "small\n", "small\n\nvar first = 1\n", 1)
	writeModule(t, files)
	if _, moved := drawn(also, 3); !slices.Equal(moved, third) {
		t.Errorf("after an edit elsewhere these are judged: %q, and before: %q", moved, third)
	}
}

// Of a package without pure files, only those that are named are changed.
func TestNamedFilesOfAPackageWithoutPureOnes(t *testing.T) {
	writeModule(t, map[string]string{"go.mod": small["go.mod"],
		"a.go": "package small\n\nfunc a(x, y int) int { return x - y }\n", "b.go": "package small\n\nfunc b(x, y int) int { return x - y }\n"})
	for _, test := range []struct{ also, want []string }{{nil, []string{"./a.go", "./b.go"}}, {[]string{"./b.go"}, []string{"./b.go"}}} {
		p, err := load(t.Context(), ".", test.also)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range p.files {
			got = append(got, f.name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("with %v: %v", test.also, got)
		}
	}
}

// A named file that does not exist is an error.
func TestFileThatNoPackageHasIsRefused(t *testing.T) {
	writeModule(t, small)
	var out bytes.Buffer
	o := options{survivors: "survivors.txt", update: true, also: []string{"gone.go"}, packages: []string{"."}}
	if err := run(t.Context(), &out, o); err == nil || !strings.Contains(err.Error(), "gone.go") {
		t.Errorf("a file that does not exist is accepted: %v", err)
	}
}
