package bench

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run of some rows keeps the others on the page, with their date.
func TestOtherRowsAreKept(t *testing.T) {
	page := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := write(fixedResults(), page); err != nil {
		t.Fatal(err)
	}
	p := program{rows: rows()[:1], page: page, command: "now"}
	r, err := p.begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Series {
		if s.Row == p.rows[0].name {
			t.Fatalf("%s is kept, although it was measured again", s.Row)
		}
	}
	if got, want := len(r.Failures), 1; got != want {
		t.Errorf("%d failures of other rows, want %d", got, want)
	}
	if text := document(r, rows()); !strings.Contains(text, "commit 0123456789ab, with `go run ./cmd/bench`") {
		t.Error("the page lacks the date of the other rows")
	}
	p.command = "go run ./cmd/bench" // as the run before, of which nothing is kept
	if r, err = p.begin(); err != nil || r.Earlier != "" {
		t.Errorf("the page dates other rows by a run whose rows were all measured again: %q (%v)", r.Earlier, err)
	}
	p.rows = rows()
	if r, err = p.begin(); err != nil || len(r.Series) > 0 || r.Earlier != "" {
		t.Errorf("a whole run keeps %d figures (%v)", len(r.Series), err)
	}
	if err := os.Remove(p.results()); err != nil {
		t.Fatal(err)
	}
	p.rows = rows()[:1]
	if r, err = p.begin(); err != nil || len(r.Series) > 0 {
		t.Errorf("without earlier results a run keeps %d figures (%v)", len(r.Series), err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-rows", "no such row"}, {"-rows", "("}, {"-render"}, {"-measure", "no such row"},
		{"-measure", "memory", "-contestant", "nobody"}, {"-render", "-write", filepath.Join(t.TempDir(), "none.md")},
	} {
		if err := Main(t.Context(), args, os.Stderr, os.Stderr); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// A program of others that is not installed is noted in the table, and the run does not fail because of that.
func TestAProgramThatIsNotInstalled(t *testing.T) {
	t.Setenv("PATH", "")
	w := row{name: "hop", contestants: []string{npmMCPProxy}, measure: hopCalls, columns: []column{{"p50", found("hop", callers(1), median), seconds, false}}}
	p := program{rows: []row{w}, rounds: 2, command: "now", progress: io.Discard}
	r, err := p.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, notes := w.table(r); len(notes) != 1 || !strings.HasSuffix(notes[0], "mcp-proxy was not in PATH.") {
		t.Errorf("the notes are %q", notes)
	}
}
