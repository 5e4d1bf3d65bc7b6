package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A module with a pure file, whose tests check the sum but not the order.
var small = map[string]string{
	"go.mod": "module small\n\ngo 1.25\n",
	"pure.go": `//bowline:pure

package small

func sum(a, b int) int { return a + b }

func least(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func count(n int) (counted int) {
	for range n {
		counted++
	}
	return counted
}

func greet() string { return "good" + "bye" }
`,
	"impure.go": "package small\n\nfunc difference(a, b int) int { return a - b }\n",
	"small_test.go": `package small

import "testing"

func TestSum(t *testing.T) {
	if sum(1, 2) != 3 || least(1, 2) != 1 || least(2, 1) != 1 {
		t.Fail()
	}
}

func TestCount(t *testing.T) {
	if count(3) != 3 {
		t.Fail()
	}
}
`,
}

func writeModule(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestVerdicts(t *testing.T) {
	writeModule(t, small)
	var out bytes.Buffer
	o := options{survivors: "survivors.txt", efficacy: 50, update: true, verbose: true, packages: []string{"."}}
	o.tests.quick = []string{"-test.run=TestSum"}
	if err := run(t.Context(), &out, o); err == nil {
		t.Error("a survivor without a reason is accepted")
	}
	for _, want := range []string{
		".: at mutant 1 of 5\n",
		"killed by TestSum: . sum: a + b => a - b\n",
		"lived: . least: a < b => a <= b\n",
		"killed by TestCount: . count: remove counted++\n",
		".: 5 mutants, 4 killed, 0 timed out, 1 lived, and 1 did not compile; efficacy 80.0 % in ",
		"least: a < b => a <= b // \n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("this is missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	o.update, o.efficacy = false, 80 // which is just enough
	explain(t, o.survivors)
	if err := run(t.Context(), &out, o); err != nil {
		t.Errorf("with a reason: %v", err)
	}
	o.efficacy = 95
	if err := run(t.Context(), &out, o); err == nil || !strings.Contains(err.Error(), "efficacy") {
		t.Errorf("with less than the required efficacy: %v", err)
	}
}

// explain adds a reason to the one line of the file.
func explain(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(bytes.TrimSpace(text), " equal numbers are the same\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A test binary that always fails would kill every mutant.
func TestNothingIsJudgedByTestsThatFail(t *testing.T) {
	writeModule(t, small)
	for name, unfit := range map[string]tests{
		"always": {always: []string{"-no-such-flag"}},
		"quick":  {quick: []string{"-no-such-flag"}},
	} {
		var out bytes.Buffer
		err := run(t.Context(), &out, options{tests: unfit, packages: []string{"."}})
		if err == nil || !strings.Contains(err.Error(), "do not pass") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMutantThatNeverEndsIsTimedOut(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod":        "module small\n\ngo 1.25\n",
		"small.go":      "package small\n\nfunc small() {\n\tfor {\n\t\tbreak\n\t}\n}\n",
		"small_test.go": "package small\n\nimport \"testing\"\n\nfunc TestSmall(*testing.T) { small() }\n",
	})
	p, err := load(t.Context(), ".", nil)
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := build(t.Context(), p, p.mutants(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := newRunner(binary, ".", tests{})
	c.rounds[0].limit = map[string]time.Duration{"TestSmall": time.Second}
	found, err := c.judge(t.Context(), p.mutants()[0])
	if err != nil || found != (finding{timedOut, "TestSmall"}) {
		t.Errorf("%v, %v", found, err)
	}
	sum := tally{killed: map[string]string{"a": "TestA", "b": "TestB"}, lived: make([]mutant, 1)}
	if sum.count(mutant{}, found); sum.all() != 4 || sum.efficacy() != 75 {
		t.Errorf("the mutant counts: %v", &sum)
	}
}

func TestFileOfSurvivorsIsWantedUnlessItIsToBeWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	for _, update := range []bool{false, true} {
		err := checkSurvivors(&out, options{survivors: "survivors.txt", update: update}, nil, nil, nil, nil)
		if (err == nil) != update {
			t.Errorf("update is %v, and there is no file: %v", update, err)
		}
	}
	if err := checkSurvivors(&out, options{survivors: ".", update: true}, nil, nil, nil, nil); err == nil {
		t.Error("a file that cannot be read is written")
	}
}

// TestOrderOfTests checks that a test that has killed a mutant of a function runs first on the
// next one, unless it fails when it runs alone, and that slow tests run last.
func TestOrderOfTests(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod": "module small\n\ngo 1.25\n",
		"small.go": `package small

func sum(a, b int) int { return a + b }

func twice(a int) int { return a + a }

func late(a int) int { return a + 1 }
`,
		"small_test.go": `package small

import (
	"testing"
	"time"
)

var before bool

func TestFirst(*testing.T) { before = true }

func TestSum(t *testing.T) {
	if sum(1, 2) != 3 {
		t.Fail()
	}
}

func TestSecond(t *testing.T) {
	if !before || twice(1) != 2 {
		t.Fail()
	}
}

func TestSlow(t *testing.T) {
	<-time.NewTimer(100 * time.Millisecond).C
	if late(1) != 2 {
		t.Fail()
	}
}
`,
	})
	p, err := load(t.Context(), ".", nil)
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := build(t.Context(), p, p.mutants(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := newRunner(binary, ".", tests{quick: []string{"-test.short"}})
	if err := c.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if quick := c.rounds[0].flags; !slices.Contains(quick, "-test.skip=^(TestSlow)$") {
		t.Errorf("the quick round is run with %q", quick)
	}
	want := []string{"TestSum", "TestSecond", "TestSlow"}
	for i, m := range p.mutants() {
		if found, err := c.judge(t.Context(), m); err != nil || found != (finding{killed, want[i]}) {
			t.Errorf("%s: %v, %v", m.name, found, err)
		}
	}
	if diff := cmp.Diff([]string{"TestSum"}, c.killersOf("sum", 0)); diff != "" {
		t.Errorf("first on sum: %s", diff)
	}
	if got := c.killersOf("twice", 0); len(got) > 0 {
		t.Errorf("first on twice are run %q, which fail alone", got)
	}
}
