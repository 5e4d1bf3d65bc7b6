//go:build unix

package guide

import (
	"os"
	"os/exec"
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

// The Go code in README compiles: a part of a function inside one that has a ctx and a server s.
func TestReadmeCompiles(t *testing.T) {
	blocks := strings.Split(read(t, "README.md"), "\n```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("README has no Go code")
	}
	for i, block := range blocks {
		code, _, _ := strings.Cut(block, "\n```")
		if !strings.HasPrefix(code, "package ") {
			var imports strings.Builder
			for _, path := range []string{"errors", "fmt", "net/http", "features/client", "protocol", "transport/stdio", "transport/streamable"} {
				if strings.Contains(code, filepath.Base(path)+".") {
					if path != "errors" && path != "fmt" && path != "net/http" {
						path = "github.com/bowline-mcp/bowline/" + path
					}
					imports.WriteString("\t" + strconv.Quote(path) + "\n")
				}
			}
			code = "package main\n\nimport (\n\t\"context\"\n\t\"github.com/bowline-mcp/bowline/features/server\"\n" + imports.String() +
				")\n\nfunc main() { _ = part }\n\nfunc part(ctx context.Context, s *server.Server) error {\n" + code + "\nreturn err\n}\n"
		}
		file := filepath.Join(t.TempDir(), "part.go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "vet", file)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s", i+1, err, out)
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
