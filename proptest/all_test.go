package proptest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestAll(t *testing.T) {
	proptest.All(t, proptest.Harness{Listen: func(_ *testing.T, accept func(transport.Link)) transport.Transport {
		return inmem.New(accept, inmem.Options{})
	}})
}

// TestAllRunsEverySuite compares what All uses with the exported functions that take a *testing.T.
func TestAllRunsEverySuite(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	suites, used := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || len(f.Type.Params.List) < 2 {
				continue
			}
			if f.Name.Name != "All" {
				suites[f.Name.Name] = true
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					used[id.Name] = true
				}
				return true
			})
		}
	}
	delete(suites, "StoreContract") // of a store
	if len(suites) < 7 {
		t.Errorf("only these suites were found: %v", suites)
	}
	for suite := range suites {
		if !used[suite] {
			t.Errorf("All does not run %s", suite)
		}
	}
}
