package guide

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([a-z][a-z0-9/]*)((?:\\.[A-Za-z]+)*)`")
	fileSpan = regexp.MustCompile("`([a-z][a-z0-9/_]*\\.go)`")
)

// TestTheMapNamesWhatExists checks that each package and declaration in docs/design/MAP.md,
// such as `conn.core.step`, exists.
func TestTheMapNamesWhatExists(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "MAP.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, span := range fileSpan.FindAllStringSubmatch(string(page), -1) {
		seen++
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(span[1]))); err != nil {
			t.Errorf("there is no file %s", span[1])
		}
	}
	page = fileSpan.ReplaceAll(page, nil)
	for _, span := range codeSpan.FindAllStringSubmatch(string(page), -1) {
		dir := filepath.Join(root, filepath.FromSlash(span[1]))
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("%s: there is no package %s", span[0], span[1])
			continue
		}
		seen++
		if name := strings.TrimPrefix(span[2], "."); name != "" && !declares(t, dir, name) {
			t.Errorf("%s: %s does not declare %s", span[0], span[1], name)
		}
	}
	if seen < 40 {
		t.Errorf("the page names only %d files, packages and declarations", seen)
	}
}

// declares reports whether a package declares a type, a function, or a method that is
// named as "Type.Method".
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			if found, _ := declared(declaration); found == name || declaresType(declaration, name) {
				return true
			}
		}
	}
	return false
}

// declaresType reports whether a declaration contains a type, or the method of an
// interface.
func declaresType(declaration ast.Decl, name string) bool {
	general, ok := declaration.(*ast.GenDecl)
	if !ok {
		return false
	}
	for _, spec := range general.Specs {
		of, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if of.Name.Name == name {
			return true
		}
		if methods, ok := of.Type.(*ast.InterfaceType); ok {
			for _, method := range methods.Methods.List {
				if len(method.Names) == 1 && of.Name.Name+"."+method.Names[0].Name == name {
					return true
				}
			}
		}
	}
	return false
}
