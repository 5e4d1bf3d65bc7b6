// Package architecture checks the shape of the source tree: which package may
// import which (layers.go), what a pure file may do (pure.go), and that no
// package changes its own variables (state.go). golangci-lint checks everything
// that a linter knows (.golangci.yml).
//
// The checks read source files only: they start no process and open no
// connection, and files behind build tags count as much as the others.
//
// To allow something new, change the table in layers.go or the rule that
// forbids it. No comment in the code exempts a line.
package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Tree is the parsed Go source of a repository.
type Tree struct {
	module string // its import path, from go.mod
	fset   *token.FileSet
	files  []*file
	info   types.Info // what the identifiers stand for
}

// A file is one Go file of the tree.
type file struct {
	path   string // slash-separated, from the root
	dir    string // its package, from the root
	test   bool
	pure   bool // marked with pureMark
	syntax *ast.File
}

// A Violation is one place where the tree breaks a rule.
type Violation struct {
	Rule string
	At   string // file:line, or a package
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s [%s]", v.At, v.What, v.Rule) }

// A reporter receives one finding: the place and the text.
type reporter func(at, format string, args ...any)

var rules = []struct {
	name  string
	check func(*Tree, reporter)
}{
	{"place", (*Tree).checkPlaces},
	{"import", (*Tree).checkImports},
	{"pure", (*Tree).checkPure},
	{"state", (*Tree).checkState},
	{"leaks", (*Tree).checkLeaks},
	{"goroutines", (*Tree).checkGoroutines},
	{"revision", (*Tree).checkRevisions},
	{"library", (*Tree).checkLibraries},
}

// Check applies every rule and returns the violations ordered by rule, then by
// place.
func (t *Tree) Check() []Violation {
	var all []Violation
	for _, rule := range rules {
		var found []Violation
		rule.check(t, func(at, format string, args ...any) {
			found = append(found, Violation{rule.name, at, fmt.Sprintf(format, args...)})
		})
		slices.SortStableFunc(found, func(a, b Violation) int { return strings.Compare(a.At, b.At) })
		all = append(all, found...)
	}
	return all
}

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

// imports yields each import of the file with its path.
func (f *file) imports(yield func(*ast.ImportSpec, string) bool) {
	for _, spec := range f.syntax.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(fmt.Sprintf("architecture: the parser accepted the import %s", spec.Path.Value))
		}
		if !yield(spec, target) {
			return
		}
	}
}

// local returns the folder of a package of this tree; local is false for others.
func (t *Tree) local(target string) (dir string, local bool) {
	if target == t.module {
		return ".", true
	}
	return strings.CutPrefix(target, t.module+"/")
}

// at is the position of a node as file:line.
func (t *Tree) at(node ast.Node) string {
	position := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
}

func (t *Tree) checkPlaces(report reporter) {
	reported := map[string]bool{}
	for _, f := range t.files {
		if !f.test && !placed(f.dir) && !reported[f.dir] {
			reported[f.dir] = true
			report(f.dir, "the package has no layer: add it to the table in internal/architecture/layers.go")
		}
	}
}

func (t *Tree) checkImports(report reporter) {
	for _, f := range t.files {
		for spec, target := range f.imports {
			to, local := t.local(target)
			if f.test || !local {
				continue
			}
			if why := forbidden(f.dir, to); why != "" {
				report(t.at(spec), "%s imports %s: %s", f.dir, to, why)
			}
		}
	}
}

// checkLibraries allows the libraries of OAuth only in the packages that need them, so
// that a program which only talks to child processes does not compile them.
func (t *Tree) checkLibraries(report reporter) {
	for _, f := range t.files {
		for spec, target := range f.imports {
			if !f.test && isOAuth(target) && !matches("auth/...", f.dir) && !matches(tooling, f.dir) && !matches("peers/...", f.dir) {
				report(t.at(spec), "%s imports %s: only auth does", f.dir, target)
			}
		}
	}
}

// checkLeaks requires goleak in every folder that has a test function: a
// package's tests fail when they leave a goroutine behind.
func (t *Tree) checkLeaks(report reporter) {
	watched, tested := map[string]bool{}, map[string]bool{}
	for _, f := range t.files {
		if !f.test {
			continue
		}
		for _, target := range f.imports {
			watched[f.dir] = watched[f.dir] || target == "go.uber.org/goleak"
		}
		tested[f.dir] = tested[f.dir] || slices.ContainsFunc(f.syntax.Decls, isTest)
	}
	for dir := range tested {
		if tested[dir] && !watched[dir] {
			report(dir, "no test file imports go.uber.org/goleak")
		}
	}
}

// checkGoroutines finds packages of the library that start goroutines, and do not say in their
// documentation which ones, and when they end.
func (t *Tree) checkGoroutines(report reporter) {
	starts, says := map[string]bool{}, map[string]bool{}
	for _, f := range t.files {
		if f.test || isTooling(f.dir) || matches(commands, f.dir) || matches(examples, f.dir) || matches(peers, f.dir) {
			continue
		}
		says[f.dir] = says[f.dir] || strings.Contains(strings.ToLower(f.syntax.Doc.Text()), "goroutine")
		starts[f.dir] = starts[f.dir] || startsGoroutines(f)
	}
	for dir := range starts {
		if starts[dir] && !says[dir] {
			report(dir, "the documentation of the package does not say which goroutines it starts")
		}
	}
}

// startsGoroutines reports whether a file has a go statement. WaitGroup.Go does not count: whoever
// calls it waits nearby.
func startsGoroutines(f *file) (starts bool) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		_, isGo := n.(*ast.GoStmt)
		starts = starts || isGo
		return !starts
	})
	return starts
}

// checkRevisions finds code of the library that names a revision of MCP: it asks revision.Has instead, so
// that the table there says what a new revision changes. An alias of the import hides nothing, and neither
// does a constant, because its date is a literal somewhere.
func (t *Tree) checkRevisions(report reporter) {
	for _, f := range t.files {
		if f.test || layerOf(f.dir) < 0 || matches("protocol/...", f.dir) || f.dir == "internal/revision" || matches(examples, f.dir) || matches(peers, f.dir) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if what := namedRevision(n); what != "" {
				report(t.at(n), "%s: ask revision.Has what it has", what)
			}
			return true
		})
	}
}

// namedRevision returns the revision that a node names, or "". The constants Latest and LatestLegacy
// are allowed: they move with each new revision.
func namedRevision(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if revisionConstant.MatchString(n.Sel.Name) {
			return n.Sel.Name
		}
	case *ast.BasicLit:
		if value, err := strconv.Unquote(n.Value); err == nil && slices.Contains(protocol.Versions(), value) {
			return n.Value
		}
	}
	return ""
}

// revisionConstant matches the names of protocol's constants of single revisions.
var revisionConstant = regexp.MustCompile(`^Version20[0-9]{6}$`)

func isTest(decl ast.Decl) bool {
	function, ok := decl.(*ast.FuncDecl)
	return ok && function.Recv == nil && function.Name.Name != "TestMain" && strings.HasPrefix(function.Name.Name, "Test")
}
