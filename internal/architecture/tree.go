// Package architecture keeps the shape of the source tree: which package may
// import which, what a pure file may do, and the house rules that syntax alone
// can show. It reads source files only: it starts no process and opens no
// connection, and files behind build tags count as much as the others.
//
// To allow something new, change the table in layers.go or the rule that
// stands in the way. No comment in the code exempts a line.
package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Tree is the parsed Go source of a repository.
type Tree struct {
	module string // its import path, from go.mod
	fset   *token.FileSet
	files  []*file
	info   *types.Info
}

// A file is one Go file of the tree.
type file struct {
	path   string // slash-separated, from the root
	dir    string // its package, from the root
	test   bool
	pure   bool // marked //bowline:pure
	syntax *ast.File
	pkg    *types.Package
}

// pureMark declares a file free of clocks, goroutines, locks, channels,
// randomness and I/O. It stands on a line of its own above the package clause.
const pureMark = "//bowline:pure"

// Load parses every Go file below the root of fsys. Folders that the go
// command ignores are left out; nested modules are part of the tree.
func Load(fsys fs.FS) (*Tree, error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, err
	}
	t := &Tree{module: module, fset: token.NewFileSet()}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return t.parse(fsys, name)
	})
	if err != nil {
		return nil, fmt.Errorf("loading the source tree: %w", err)
	}
	t.resolve()
	return t, nil
}

func modulePath(fsys fs.FS) (string, error) {
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", fmt.Errorf("finding the module's path: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if module, found := strings.CutPrefix(strings.TrimSpace(line), "module "); found {
			return module, nil
		}
	}
	return "", fmt.Errorf("finding the module's path: go.mod has no module line")
}

func ignored(dir string) bool {
	base := path.Base(dir)
	switch base {
	case ".":
		return false
	case "testdata", "vendor", "node_modules":
		return true
	}
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

func (t *Tree) parse(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &file{
		path:   name,
		dir:    path.Dir(name),
		test:   strings.HasSuffix(name, "_test.go"),
		pure:   marked(syntax),
		syntax: syntax,
	})
	return nil
}

func marked(syntax *ast.File) bool {
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			if comment.Pos() < syntax.Package && comment.Text == pureMark {
				return true
			}
		}
	}
	return false
}

// imports yields each import of the file with its path.
func (f *file) imports(yield func(*ast.ImportSpec, string) bool) {
	for _, spec := range f.syntax.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(fmt.Sprintf("architecture: the parser let %s through", spec.Path.Value))
		}
		if !yield(spec, target) {
			return
		}
	}
}

// at is the position of a node as file:line.
func (t *Tree) at(node ast.Node) string {
	position := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
}
