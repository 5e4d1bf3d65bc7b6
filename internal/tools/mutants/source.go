package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is one package whose tests are put to the test.
type pkg struct {
	path  string // to import it by
	name  string
	dir   string // from the working directory, with slashes
	files []*file

	testFiles  []string // of the package, without a folder
	properties bool     // whether its tests have the flags of rapid

	fset  *token.FileSet
	types *types.Info // nil for none
}

// A file is one Go file whose functions are broken.
type file struct {
	name      string // from the working directory, with slashes
	text      []byte
	start     *token.File
	pure      bool // marked as such
	syntax    *ast.File
	imports   map[string]bool // the names of packages
	functions []*ast.FuncDecl // those with a body, in order
}

// load reads a package.
func load(ctx context.Context, pattern string) (*pkg, error) {
	list, err := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	var listed struct {
		ImportPath, Name, Dir              string
		GoFiles, TestGoFiles, XTestGoFiles []string
	}
	if err := json.Unmarshal(list, &listed); err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	working, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Rel(working, listed.Dir)
	if err != nil {
		return nil, err
	}
	deps, err := exec.CommandContext(ctx, "go", "list", "-test", "-deps", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -test %s: %w", pattern, err)
	}
	p := &pkg{path: listed.ImportPath, name: listed.Name, dir: filepath.ToSlash(dir), fset: token.NewFileSet()}
	p.testFiles = append(listed.TestGoFiles, listed.XTestGoFiles...)
	p.properties = slices.Contains(strings.Fields(string(deps)), "pgregory.net/rapid")
	for _, name := range listed.GoFiles {
		f, err := readFile(p.fset, p.dir+"/"+name)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	return p, p.resolve(ctx)
}

func readFile(fset *token.FileSet, name string) (*file, error) {
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{name: name, text: text, start: fset.File(syntax.Pos()), pure: marked(syntax), syntax: syntax, imports: map[string]bool{}}
	for _, spec := range syntax.Imports {
		imported := path.Base(strings.Trim(spec.Path.Value, `"`))
		if spec.Name != nil {
			imported = spec.Name.Name
		}
		f.imports[imported] = true
	}
	for _, decl := range syntax.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Body != nil {
			f.functions = append(f.functions, function)
		}
	}
	return f, nil
}

func marked(syntax *ast.File) bool {
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			if comment.Pos() < syntax.Package && comment.Text == "//bowline:pure" {
				return true
			}
		}
	}
	return false
}

// between is the text from one position to another.
func (f *file) between(from, to token.Pos) string {
	return string(f.text[f.start.Offset(from):f.start.Offset(to)])
}

func (f *file) of(node ast.Node) string { return f.between(node.Pos(), node.End()) }
