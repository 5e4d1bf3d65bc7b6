package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
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
	"scores.txt": ". 66 pure\n", // which is just reached
	"impure.go":  "package small\n\nfunc difference(a, b int) int { return a - b }\n",
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
	o := options{survivors: "survivors.txt", scores: "scores.txt", maps: t.TempDir(), efficacy: -1, update: true, verbose: true, part: 1, packages: []string{"."}}
	if err := run(t.Context(), &out, &o); err == nil {
		t.Error("a survivor without a reason is accepted")
	}
	for _, want := range []string{
		".: at mutant 1 of 6\n",
		"killed by TestSum: . sum: a + b => a - b\n",
		"lived: . least: a < b => a <= b\n",
		"killed by TestCount: . count: remove counted++\n",
		"lived: no test reaches it: . difference: a - b => a + b\n",
		"least: a < b => a <= b // \n",
		heading + "\n.  6  4  0  1  1  66.7%\n",
	} {
		if !strings.Contains(spaced.ReplaceAllString(out.String(), "  "), spaced.ReplaceAllString(want, "  ")) {
			t.Errorf("this is missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	o.update = false
	explain(t, o.survivors)
	if err := run(t.Context(), &out, &o); err != nil {
		t.Errorf("with a reason: %v", err)
	}
	o.efficacy = 95
	if err := run(t.Context(), &out, &o); err == nil || !strings.Contains(err.Error(), "under 95 %") {
		t.Errorf("with less than the required score: %v", err)
	}
}

var spaced = regexp.MustCompile(` {2,}`)

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
	var out bytes.Buffer
	err := run(t.Context(), &out, &options{scores: "scores.txt", maps: t.TempDir(), flags: []string{"-no-such-flag"}, packages: []string{"."}})
	if err == nil || !strings.Contains(err.Error(), "do not pass") {
		t.Error(err)
	}
}

// A test that fails without a mutant, alone or among them, kills none.
func TestATestThatFailsKillsNothing(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod": small["go.mod"],
		"a.go":   "package small\n\nfunc sum(a, b int) int { return a + b }\n",
		"a_test.go": `package small

import (
	"os"
	"testing"
)

func TestFails(t *testing.T) {
	if sum(1, 2) == 3 {
		t.Fail()
	}
}

func TestFailsAmongMutants(t *testing.T) {
	_ = sum(1, 2)
	if _, among := os.LookupEnv("BOWLINE_MUTANT"); among {
		t.Fail()
	}
}
`,
		"scores.txt": "",
	})
	var out bytes.Buffer
	o := options{scores: "scores.txt", survivors: "survivors.txt", maps: t.TempDir(), update: true, verbose: true, packages: []string{"."}}
	if err := run(t.Context(), &out, &o); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"alone, without a mutant, TestFails does not pass",
		"among the mutants, and without one, TestFailsAmongMutants does not pass",
		"lived: . sum: a + b => a - b\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestMutantThatNeverEndsIsTimedOut(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod":        "module small\n\ngo 1.25\n",
		"small.go":      "package small\n\nfunc small() {\n\tfor {\n\t\tbreak\n\t}\n}\n",
		"small_test.go": "package small\n\nimport \"testing\"\n\nfunc TestSmall(*testing.T) { small() }\n",
	})
	c, all := newTestRunner(t)
	c.patience, c.enough = 0.1, 100*time.Millisecond
	found, err := c.judge(t.Context(), &all[0], c.reach.tests(&all[0]))
	if err != nil || found != (finding{timedOut, "TestSmall"}) {
		t.Errorf("%v, %v", found, err)
	}
}

// A test that has failed kills the mutant, although examples hang that are run after it.
func TestExamplesThatHangAfterAFailureDoNotCount(t *testing.T) {
	writeModule(t, map[string]string{
		"go.mod":   small["go.mod"],
		"small.go": "package small\n\nfunc small() int { return 1 + 1 }\n",
		"small_test.go": `package small

import "testing"

func TestSmall(t *testing.T) {
	if small() != 2 {
		t.Error("it is not two")
	}
}

func Example() {
	for small() != 2 {
	}
	// Output:
}

func Example_another() {
	for small() != 2 {
	}
	// Output:
}
`,
	})
	c, all := newTestRunner(t)
	c.patience, c.enough = 0.1, 100*time.Millisecond
	found, err := c.judge(t.Context(), &all[0], c.reach.tests(&all[0]))
	if err != nil || found != (finding{killed, "TestSmall"}) {
		t.Errorf("%v, %v", found, err)
	}
}

// A test that only waits gets the time for its own guard.
func TestMutantThatWaitsIsKilledByTheGuard(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // other systems do not tell whether a process waits
	}
	writeModule(t, map[string]string{
		"go.mod":   small["go.mod"],
		"small.go": "package small\n\nfunc small(c chan int) {\n\tclose(c)\n}\n",
		"small_test.go": `package small

import (
	"testing"
	"time"
)

func TestSmall(t *testing.T) {
	c := make(chan int)
	small(c)
	select {
	case <-c:
	case <-time.NewTimer(2 * time.Second).C:
		t.Fatal("nothing was closed")
	}
}
`,
	})
	c, all := newTestRunner(t)
	c.patience = 0.1
	found, err := c.judge(t.Context(), &all[0], c.reach.tests(&all[0]))
	if err != nil || found != (finding{killed, "TestSmall"}) {
		t.Errorf("%v, %v", found, err)
	}
}

// newTestRunner makes a runner for the package in the working directory.
func newTestRunner(t *testing.T) (*runner, []mutant) {
	t.Helper()
	p, err := load(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := build(t.Context(), p, p.mutants(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(t.Context(), t.Output(), p, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRunner(newMachine(t.Output()), binary, ".", nil, r), p.mutants()
}

// Of a sample, the score and the timeouts may be off by chance.
func TestWhatIsAskedOfAPackage(t *testing.T) {
	of := func(killed, timedOut, lived, left int) *tally {
		t := &tally{dir: "a", killed: map[string]string{}, timedOut: make([]mutant, timedOut), lived: make([]mutant, lived), left: make([]mutant, left)}
		for i := range killed {
			t.killed[fmt.Sprint(i)] = "TestA"
		}
		return t
	}
	for name, c := range map[string]struct {
		tally *tally
		want  string // in the error
	}{
		"just enough":                {of(85, 5, 10, 0), ""},
		"too few":                    {of(84, 5, 11, 0), "the score 89.0 % is under 90 %"},
		"too many out of time":       {of(84, 6, 10, 0), "6 of 100 mutants ran out of time"},
		"a sample":                   {of(75, 9, 16, 900), ""},
		"a sample, too few":          {of(75, 8, 17, 900), "is under"},
		"a sample, many out of time": {of(80, 10, 10, 900), "ran out of time"},
		"nothing was judged":         {of(0, 0, 0, 900), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.tally.check(90); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestFileOfSurvivorsIsWantedUnlessItIsToBeWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	for _, update := range []bool{false, true} {
		err := checkSurvivors(&out, &options{survivors: "survivors.txt", update: update}, new(tally), standard{})
		if (err == nil) != update {
			t.Errorf("update is %v, and there is no file: %v", update, err)
		}
	}
	if err := checkSurvivors(&out, &options{survivors: ".", update: true}, new(tally), standard{}); err == nil {
		t.Error("a file that cannot be read is written")
	}
}

// TestOrderOfTests checks that a test that has killed a mutant of a function runs first on the
// next one, and that only tests that reach a mutant run, the slow ones last.
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

func TestFirst(*testing.T) {}

func TestSum(t *testing.T) {
	if sum(1, 2) != 3 {
		t.Fail()
	}
}

func TestTwice(t *testing.T) {
	if twice(1) != 2 {
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
	c, all := newTestRunner(t)
	want := []string{"TestSum", "TestTwice", "TestSlow"}
	for i, m := range all {
		if got := c.reach.tests(&m); !slices.Equal(got, want[i:i+1]) {
			t.Errorf("%s is reached by %q", m.name, got)
		}
		if found, err := c.judge(t.Context(), &m, want[i:i+1]); err != nil || found != (finding{killed, want[i]}) {
			t.Errorf("%s: %v, %v", m.name, found, err)
		}
		if got := c.killers[declaration.Function(m.function)]; !slices.Equal(got, want[i:i+1]) {
			t.Errorf("%q are first on %s", got, declaration.Function(m.function))
		}
	}
	second := 1100 * time.Millisecond
	r := &reach{took: map[string]time.Duration{"c": quick, "d": 2 * quick, "e": second, "f": second}}
	if diff := cmp.Diff([][]string{{"c"}, {"a", "b"}, {"d"}, {"e"}, {"f"}}, r.rounds([]string{"a", "b", "c", "d", "e", "f"}, []string{"c", "z"})); diff != "" {
		t.Error(diff)
	}
}
