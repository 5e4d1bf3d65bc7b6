//go:build unix

package guide

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What README says of speed is what the page of benchmarks says, the slow calls included.
func TestReadmeSaysWhatTheBenchmarksSay(t *testing.T) {
	readme, page := read(t, "README.md"), read(t, "docs", "benchmarks.md")
	_, echo, _ := strings.Cut(page, "\n## Echo over streamable HTTP\n")
	for _, library := range []string{"Bowline", "mcp-go", "go-sdk"} {
		_, row, found := strings.Cut(echo, "\n| "+library+" ")
		cells := strings.Split(row, "|")
		if !found || len(cells) < 3 {
			t.Fatalf("the page has no row for %s", library)
		}
		for i, name := range []string{"median", "p99"} {
			value, unit, _ := strings.Cut(strings.TrimSpace(cells[1+i]), " ")
			unit, _, _ = strings.Cut(unit, " ")
			if number, err := strconv.ParseFloat(value, 64); err == nil && number >= 10 {
				value = strconv.FormatFloat(number, 'f', 0, 64)
			}
			if want := value + " " + unit; !strings.Contains(readme, want) {
				t.Errorf("README does not say %q, the %s of %s", want, name, library)
			}
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
