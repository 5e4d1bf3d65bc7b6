package main

import (
	"fmt"
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

func TestEverySurvivorIsExplained(t *testing.T) {
	both := []mutant{{name: "a f: a < b => a <= b"}, {name: "a f: remove g()"}}
	for name, c := range map[string]struct {
		file  string
		lived []mutant
		want  string // in the one problem; "" for no problem
	}{
		"explained":               {explained, both, ""},
		"not in the file":         {explained, append(both, mutant{name: "a f: !y => y", at: "a/a.go:7"}), "a/a.go:7: "},
		"without a reason":        {explained + "a f: !y => y //\n", append(both, mutant{name: "a f: !y => y", at: "a/a.go:7"}), "a/a.go:7: "},
		"in the file, but killed": {explained, both[:1], "no such mutant has lived: a f: remove g()\nit was killed by TestF"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := parsed(t, c.file).check([]string{"a"}, c.lived, map[string]string{"a f: remove g()": "TestF"}, 1)
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], c.want)) {
				t.Errorf("the problems are %q, want %q", problems, c.want)
			}
		})
	}
}

// A part always contains the same mutants, and each mutant is in equally many parts. The
// lines of the file for other mutants are ignored.
func TestAPartOfTheMutantsIsJudged(t *testing.T) {
	var lines strings.Builder
	var inPart, all []mutant
	for i := range 300 {
		m := mutant{name: fmt.Sprintf("a f%d: !x => x", i)}
		fmt.Fprintln(&lines, m.name+" // nobody looks")
		all = append(all, m)
	}
	for _, m := range all {
		m.file = new(file)
		if len(sample([]mutant{m}, 1, 3)) == 1 {
			inPart = append(inPart, m)
		}
	}
	if len(inPart) < 70 || len(inPart) > 130 {
		t.Errorf("a third of 300 mutants are %d", len(inPart))
	}
	s := parsed(t, lines.String())
	if problems := s.check([]string{"a"}, inPart, nil, 3); len(problems) > 0 {
		t.Errorf("the problems are %q", problems)
	}
	if problems := s.check([]string{"a"}, inPart[1:], nil, 3); len(problems) != 1 {
		t.Errorf("one mutant was killed, and the problems are %q", problems)
	}
	if problems := s.check([]string{"a"}, inPart, nil, 1); len(problems) != 300-len(inPart) {
		t.Errorf("%d problems with all that were not judged", len(problems))
	}
	if err := run(t.Context(), io.Discard, options{update: true, part: 3}); err == nil {
		t.Error("the file was rewritten although only a part was judged")
	}
}

// The file may also explain mutants that ran out of time.
func TestWhoRanOutOfTimeIsTakenAtTheFilesWord(t *testing.T) {
	slow := []mutant{{name: "a f: remove g()"}, {name: "a f: !y => y"}}
	if got := parsed(t, explained).explained(slow); len(got) != 1 || got[0].name != slow[0].name {
		t.Errorf("explained are %v", got)
	}
}

func TestUpdateKeepsReasons(t *testing.T) {
	s := parsed(t, explained)
	s.update([]string{"a"}, []mutant{{name: "a f: remove g()"}, {name: "a e: !y => y"}})
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
}

func TestSameLineTwiceIsRefused(t *testing.T) {
	if _, err := parseSurvivors(explained + "b h: !x => x // again\n"); err == nil {
		t.Error("two lines for one mutant are accepted")
	}
}
