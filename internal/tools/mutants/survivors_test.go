package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const explained = `# Who may live.

a f: a < b => a <= b // equal values are the same
a f: remove g() // g does nothing
b h: !x => x // nobody looks
`

func parsed(t *testing.T, text string) *survivors {
	t.Helper()
	s, err := parseSurvivors(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var in = &file{name: "a/a.go", pure: true}

func TestEverySurvivorIsExplained(t *testing.T) {
	both := []mutant{{name: "a f: a < b => a <= b", file: in}, {name: "a f: remove g()", file: in}}
	other := mutant{name: "a f: !y => y", at: "a/a.go:7", file: in}
	for name, c := range map[string]struct {
		file           string
		tally          tally
		want           string // in the one problem; "" for no problem
		withoutReasons bool
	}{
		"explained":               {explained, tally{lived: both}, "", false},
		"not in the file":         {explained, tally{lived: append(both, other)}, "a/a.go:7: ", false},
		"without a reason":        {explained + "a f: !y => y //\n", tally{lived: append(both, other)}, "a/a.go:7: ", false},
		"no reason is needed":     {explained, tally{lived: append(both, other)}, "", true},
		"in the file, but killed": {explained, tally{lived: both[:1]}, "no such mutant has lived: a f: remove g()\nit was killed by TestF", false},
		"in the file, left out":   {explained, tally{lived: both[:1], left: both[1:]}, "", false},
		"in the file, timed out":  {explained, tally{lived: both[:1], timedOut: both[1:]}, "", false},
		"timed out":               {explained, tally{lived: both, timedOut: []mutant{other}}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.tally.dir, c.tally.killed = "a", map[string]string{"a f: remove g()": "TestF"}
			problems := parsed(t, c.file).check(&c.tally, func(m *mutant) bool { return m.file == in && !c.withoutReasons })
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], c.want)) {
				t.Errorf("the problems are %q, want %q", problems, c.want)
			}
		})
	}
}

// Who ran out of time keeps a reason, and needs none.
func TestUpdateKeepsReasons(t *testing.T) {
	out := &file{name: "a/b.go"}
	s := parsed(t, explained)
	s.update(&tally{
		dir:      "a",
		lived:    []mutant{{name: "a e: !y => y", file: in}, {name: "a e: !z => z", file: out}},
		timedOut: []mutant{{name: "a f: remove g()", file: in}, {name: "a f: remove h()", file: in}},
	}, func(m *mutant) bool { return m.file == in })
	const want = `# Who may live.

a e: !y => y //
a f: remove g() // g does nothing
b h: !x => x // nobody looks
`
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Error(diff)
	}
	if again := parsed(t, s.String()); !cmp.Equal(again.reasons, s.reasons) {
		t.Errorf("it is read back as %q", again.reasons)
	}
	if err := run(t.Context(), io.Discard, &options{update: true, part: 3}); err == nil {
		t.Error("the file was rewritten although only a part was judged")
	}
}

func TestScoresAreRead(t *testing.T) {
	got, err := parseScores("# who\n\na 90.5 pure b*.go\na/c 20\n")
	if err != nil || got["a"].score != 90.5 || got["a/c"].score != 20 {
		t.Errorf("%v, %v", got, err)
	}
	for f, want := range map[*file]bool{{name: "a/a.go", pure: true}: true, {name: "a/a.go"}: false, {name: "a/b1.go"}: true} {
		if got["a"].explains(&mutant{file: f}) != want || got["a/c"].explains(&mutant{file: f}) || got["a"].explains(&mutant{file: f, moved: true}) {
			t.Errorf("survivors of %v", f)
		}
	}
	for _, wrong := range []string{"a\n", "a most\n"} {
		if _, err := parseScores(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestSameLineTwiceIsRefused(t *testing.T) {
	if _, err := parseSurvivors(explained + "b h: !x => x // again\n"); err == nil {
		t.Error("two lines for one mutant are accepted")
	}
}
