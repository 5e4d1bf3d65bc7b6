package guide

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsAreListed checks that docs/guide/errors.md names every error that the client and
// the server export.
func TestErrorsAreListed(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs", "guide", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, name := range []string{"client", "server"} {
		names := exportedErrors(t, filepath.Join(root, "features", name))
		if len(names) < 5 {
			t.Errorf("features/%s exports only the errors %v", name, names)
		}
		for _, export := range names {
			if !strings.Contains(page, "`"+name+"."+export+"`") && !strings.Contains(page, "`*"+name+"."+export+"`") {
				t.Errorf("the page does not name %s.%s", name, export)
			}
		}
	}
}

// exportedErrors returns the variables Err… and the types …Error of a package.
func exportedErrors(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				names = append(names, errorsOf(spec)...)
			}
		}
	}
	return names
}

func errorsOf(spec ast.Spec) (names []string) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() && strings.HasSuffix(spec.Name.Name, "Error") {
			names = append(names, spec.Name.Name)
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if strings.HasPrefix(name.Name, "Err") {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
