package guide

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named are the packages whose exported names the pages may use, by the last part of
// their path.
var named = map[string]string{
	"client": "features/client", "server": "features/server", "conn": "conn", "supervisor": "supervisor",
	"registry": "supervisor/registry", "transport": "transport", "stdio": "transport/stdio", "streamable": "transport/streamable",
	"sse": "transport/sse", "inmem": "transport/inmem", "transcript": "transport/transcript", "fault": "transport/fault",
	"protocol": "protocol", "jsonrpc": "protocol/jsonrpc", "schema": "protocol/schema", "auth": "auth", "resource": "auth/resource",
	"guard": "auth/guard", "authfile": "auth/authfile", "mcpjson": "mcpjson", "sessions": "mcpjson/sessions",
	"telemetry": "telemetry", "mcptest": "mcptest", "proptest": "proptest",
}

// foreign are pages that also name packages of other libraries, which have the same
// names.
var foreign = []string{"from-go-sdk.md", "from-mcp-go.md", "side-by-side.md", "benchmarks.md", "interop.md", "interop-features.md"}

var qualified = regexp.MustCompile("`[&*]?([a-z]+)\\.([A-Z][A-Za-z0-9]*)")

// TestPagesNameWhatExists checks that a name on a page, such as `client.ErrLost`, is exported
// by its package.
func TestPagesNameWhatExists(t *testing.T) {
	exported, checked := make(map[string]map[string]bool), 0
	for name, dir := range named {
		exported[name] = exports(t, filepath.Join(root, filepath.FromSlash(dir)))
	}
	check := func(path string) {
		for _, other := range foreign {
			if filepath.Base(path) == other {
				return
			}
		}
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range qualified.FindAllStringSubmatch(string(page), -1) {
			if names, known := exported[found[1]]; known {
				checked++
				if !names[found[2]] {
					t.Errorf("%s: %s does not export %s", path, named[found[1]], found[2])
				}
			}
		}
	}
	check(filepath.Join(root, "README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 200 {
		t.Errorf("only %d names were checked", checked)
	}
}

// exports returns the exported declarations of a package.
func exports(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	names := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}
