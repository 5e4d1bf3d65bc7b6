package bench

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the files under testdata")

// fixedResults returns three rounds of every figure of the page. The figures differ by round
// and contestant, and are always the same.
func fixedResults() *Results {
	r := &Results{
		Taken: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Took: "1m0s", Commit: "0123456789ab", Command: "go run ./cmd/bench",
		Machine:  Machine{Go: "go1.26.8", System: "linux/amd64", Kernel: "6.0", Processor: "A processor", Processors: 2},
		Versions: map[string]string{"go-sdk": "v1.8.0", "mcp-go": "v1.2.1"},
		Failures: []Failure{{Row: "connect", Contestant: goSDKLegacy, Why: "it was not there"}},
	}
	for _, w := range rows() {
		for i, name := range w.contestants {
			if _, failed := r.failure(w.name, name); failed {
				continue
			}
			for _, key := range asked(w, name) {
				value := 1e-5 * float64(i+1) * float64(1+len(r.Series)%7)
				if !strings.HasSuffix(key.Metric, " s") {
					value *= 1e7
				}
				r.Series = append(r.Series, Series{w.name, name, key.Point, key.Metric, []float64{value, 9 * value, 1.1 * value}})
			}
		}
	}
	return r
}

// asked returns the figures of one contestant that the page shows.
func asked(w row, name string) (keys []Series) {
	points := []string{""}
	metrics := []string{median, mean, percentile, permille, rate, allocs, allocated, processor, held, goroutines, arrived, lost, handled, peak, quiet, callEnds, closeEnds}
	for _, n := range []int{1, 3, 8, 17, 64, 200, 1000, 4096} {
		points = append(points, callers(n))
	}
	for _, n := range payloadSizes() {
		points = append(points, payload(n))
	}
	for _, n := range connectionNumbers(false) {
		points = append(points, connections(n))
	}
	points = append(points, tenServers, wholeList, inThis, undisturbed, flooded, opened, moved, changed, withoutStream, withStream, parked(1), parked(mostParked(false)), "tools=1000", "tools=10000", "resources=1000", "resources=100000", "schema=1000", "schema=250000", "call", "question", "task", "payload=16384 random", "payload=16384 found", "payload=16384 nested")
	for _, point := range points {
		for _, metric := range metrics {
			probe := &Results{Series: []Series{{w.name, name, point, metric, []float64{1}}, {w.name, theFloor, point, metric, []float64{1}}}}
			wanted := slices.ContainsFunc(w.columns, func(c column) bool { return len(c.value(probe, name)) > 0 })
			for _, p := range plots() {
				wanted = wanted || p.row == w.name && slices.Contains(p.contestants, name) && len(p.curves(probe)) > 0
			}
			if wanted {
				keys = append(keys, Series{Point: point, Metric: metric})
			}
		}
	}
	return keys
}

func atMost(bound float64, unit unit, what, contestant string, value figure) target {
	return target{what: what, contestant: contestant, value: value, unit: unit, atMost: true, bound: bound}
}

func atLeast(bound float64, unit unit, what, contestant string, value figure) target {
	return target{what: what, contestant: contestant, value: value, unit: unit, bound: bound}
}

// because returns the target with what stands in its way. The page shows that only while the
// target is not met.
func (t target) because(obstacle string) target {
	t.obstacle = obstacle
	return t
}

func TestPage(t *testing.T) {
	golden(t, "page.md", document(fixedResults(), rows()))
}

func TestPlot(t *testing.T) {
	golden(t, "latency-memory.svg", plots()[0].svg(fixedResults()))
}

func TestPlotOfNothing(t *testing.T) {
	if drawn := plots()[0].svg(new(Results)); drawn != "" {
		t.Errorf("an empty plot is %.100q", drawn)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed; run go test -update and see the difference", path)
	}
}

// TestEveryRowIsOnThePage also checks the page of this repository, which must match its
// results.json.
func TestEveryRowIsOnThePage(t *testing.T) {
	const kept = "../../docs/benchmarks.md"
	page, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range rows() {
		if !strings.Contains(string(page), "\n## "+w.title+"\n") {
			t.Errorf("%s has no row %q", kept, w.title)
		}
		for _, name := range w.contestants {
			if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + `( \[\d+\])? +\|`).Match(page) {
				t.Errorf("%s has no line of %q", kept, name)
			}
		}
	}
	copied := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.CopyFS(folderOf(copied), os.DirFS(folderOf(kept))); err != nil {
		t.Fatal(err)
	}
	if err := Main(context.Background(), []string{"-render", "-write", copied}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(page) {
		t.Errorf("%s is stale: cd peers && go run ./cmd/bench -render -write ../docs/benchmarks.md", kept)
	}
	for _, p := range plots() {
		was, err := os.ReadFile(filepath.Join(folderOf(kept), p.file))
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(filepath.Join(folderOf(copied), p.file))
		if err != nil {
			t.Fatal(err)
		}
		if string(is) != string(was) {
			t.Errorf("%s is stale: see above", p.file)
		}
	}
}

func TestResultsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	want := fixedResults()
	if err := want.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if document(got, rows()) != document(want, rows()) {
		t.Error("the page of loaded results differs from the page of the saved results")
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{7, 1, 100}, 7}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := middle(c.values); got != c.want {
			t.Errorf("middle(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// TestRatiosAreOfOneRound checks that ratios are computed within one round, because a machine may be
// slow in one round.
func TestRatiosAreOfOneRound(t *testing.T) {
	r := &Results{Series: []Series{
		{"memory", theFloor, "", median, []float64{10, 1000, 20}},
		{"memory", bowlineTyped, "", median, []float64{5, 500, 10}},
	}}
	p50 := found("memory", "", median)
	if got := p50.toFloor()(r, bowlineTyped); !slices.Equal(got, []float64{0.5, 0.5, 0.5}) {
		t.Errorf("ratios %v, want 0.5 in each round", got)
	}
	if got := p50.toFloor()(r, goSDKLegacy); len(got) > 0 {
		t.Errorf("ratios %v of a contestant that was not measured", got)
	}
	c := column{"p50", p50, seconds, true}
	if got, want := c.cell(&Results{Series: r.Series[:1]}, theFloor), "20 s"; got != want {
		t.Errorf("cell %q, want %q", got, want)
	}
	if got, want := c.cell(r, bowlineTyped), "10 s (0.5 f)"; got != want {
		t.Errorf("cell %q, want %q", got, want)
	}
}

func TestTargetsAreMetOrNot(t *testing.T) {
	r := &Results{Series: []Series{{"memory", bowlineTyped, "", median, []float64{2, 4, 3}}}}
	p50 := found("memory", "", median)
	w := row{title: "Work", targets: []target{
		atMost(3, count, "at most three", bowlineTyped, p50), atMost(2.9, count, "less", bowlineTyped, p50),
		atLeast(3, count, "at least three", bowlineTyped, p50), atLeast(3.1, count, "more", bowlineTyped, p50),
		atLeast(1, count, "another", goSDKLegacy, p50),
	}}
	var got []string
	for _, line := range targetLines(r, []row{w})[1:] {
		got = append(got, line[len(line)-1])
	}
	if want := []string{"met", "**not met**", "met", "**not met**", "not measured"}; !slices.Equal(got, want) {
		t.Errorf("targets are %q, want %q", got, want)
	}
}

// The page says what stands in the way of a target that is not met, once for each reason, and
// nothing of others.
func TestThePageSaysWhatStandsInTheWay(t *testing.T) {
	r := &Results{Series: []Series{{"memory", bowlineTyped, "", median, []float64{2}}}}
	p50 := found("memory", "", median)
	rows := []row{{title: "Work", targets: []target{
		atMost(3, count, "met", bowlineTyped, p50).because("not shown"),
		atMost(1, count, "first", bowlineTyped, p50).because("the same"), atMost(1.5, count, "second", bowlineTyped, p50).because("the same"),
		atLeast(3, count, "not measured", goSDKLegacy, p50).because("not shown"),
	}}}
	if got, want := obstacles(r, rows), "- **Work**, first; second: the same\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFailureTakesItsFiguresBack(t *testing.T) {
	r := new(Results)
	r.add("memory", goSDKLegacy, []sample{{"", median, 1}})
	r.add("memory", theFloor, []sample{{"", median, 1}})
	r.fail("memory", goSDKLegacy, io.ErrUnexpectedEOF)
	w := row{name: "memory", contestants: []string{theFloor, goSDKLegacy}, columns: []column{{"p50", found("memory", "", median), seconds, true}}}
	lines, notes := w.table(r)
	if got, want := lines[2], []string{goSDKLegacy + " [1]", missing}; !slices.Equal(got, want) {
		t.Errorf("line %q, want %q", got, want)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], io.ErrUnexpectedEOF.Error()) {
		t.Errorf("notes %q, want one with the reason", notes)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{seconds(21.84e-6), "21.8 µs"}, {seconds(0.0545), "54.5 ms"}, {seconds(2), "2 s"}, {size(12_000), "12 kB"}, {size(5), "5 B"},
		{binarySize(1 << 20), "1 MiB"}, {perSecond(66_900), "66.9 k/s"}, {count(0), "0"}, {count(-0.001), "0"}, {count(-0.25), "-0.25"}, {times(1.306), "1.31 ×"}, {percent(0.02), "2 %"},
		{patience(timedOut.Seconds()), "> 6 s"}, {patience(0.2), "200 ms"}, {seconds(999.6e-6), "1000 µs"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestRowsThatAreWrong checks that rows.txt is refused with a mistake in it, and that the figures of a row are
// read from left to right.
func TestRowsThatAreWrong(t *testing.T) {
	const good = "row memory\n  by floor; go-sdk\n  column p50 | seconds and its ratio | p50 in s\n  target t | go-sdk | at most 2 times | p50 in s - @floor / 2 / @floor | before 1\n"
	all, err := readRows(good)
	if err != nil {
		t.Fatal(err)
	}
	r := &Results{Series: []Series{{"memory", theFloor, "", median, []float64{3}}, {"memory", goSDKLegacy, "", median, []float64{9}}}}
	if got := all[0].targets[0].value(r, goSDKLegacy); len(got) > 0 { // the floor's own difference is nothing
		t.Errorf("the figure is %v", got)
	}
	if got := readFigure("memory", "p50 in s - @floor / 2")(r, goSDKLegacy); !slices.Equal(got, []float64{3}) {
		t.Errorf("the figure is %v, want (9 - 3) / 2", got)
	}
	for _, wrong := range [][2]string{
		{"row memory", "row nothing"}, {"floor; go-sdk", "floor; else"}, {"seconds and", "hours and"}, {" | p50 in s\n", "\n"},
		{"  column", "  colunm"}, {"| go-sdk |", "| else |"}, {"at most 2 times", "at most two times"}, {"2 times", "2 hours"}, {"before 1", "before all"},
		{"row memory", "again memory"},
	} {
		if _, err := readRows(strings.Replace(good, wrong[0], wrong[1], 1)); err == nil {
			t.Errorf("%q is taken", wrong[1])
		}
	}
}
