package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// A Test is a function that go test can run.
type Test struct {
	Name string // TestLateReply
	File string // its path from the root
}

// A claim says that a function tests guarantees.
type claim struct {
	function string
	file     string
	line     int
	ids      []string
	suite    bool // an exported function of proptest, run by tests elsewhere
}

const suiteFolder = "proptest"

var (
	claimStart = regexp.MustCompile(`^\s*Guarantees:\s*(.*)$`)
	claimID    = regexp.MustCompile(`^G-[0-9]{4}\.[1-9][0-9]*$`)
	testName   = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)
)

// source contains, from the Go files of the tree, which functions claim guarantees,
// and which tests run which suites.
type source struct {
	claims    []claim
	runs      map[string][]Test // by the suite's name, once for each mention
	functions map[string]bool   // "conn core.close": those that are no tests, by folder and name
	problems  []string
}

// readSource reads the tests, suites and functions of every module that go.work joins (ADR-0053).
// Other nested modules are not looked at.
func readSource(fsys fs.FS) (*source, error) {
	s := &source{runs: map[string][]Test{}, functions: map[string]bool{}}
	joined, err := joinedModules(fsys)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(fsys, joined, name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "_test.go") || path.Dir(name) == suiteFolder {
			s.read(fset, name, syntax)
		}
		if !strings.HasSuffix(name, "_test.go") {
			s.readFunctions(path.Dir(name), syntax)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	return s, nil
}

var useLine = regexp.MustCompile(`(?m)^\s*(?:use\s+)?\./(\S+)\s*$`)

// joinedModules are the folders that go.work names, below the root.
func joinedModules(fsys fs.FS) (folders []string, err error) {
	text, err := fs.ReadFile(fsys, "go.work")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading go.work: %w", err)
	}
	for _, line := range useLine.FindAllSubmatch(text, -1) {
		folders = append(folders, path.Clean(string(line[1])))
	}
	return folders, nil
}

func ignored(fsys fs.FS, joined []string, dir string) bool {
	base := path.Base(dir)
	switch base {
	case ".":
		return false
	case "testdata", "vendor", "node_modules":
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	apart := err == nil && !slices.Contains(joined, dir)
	return apart || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

func (s *source) readFunctions(folder string, syntax *ast.File) {
	for _, decl := range syntax.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok {
			s.functions[folder+" "+declaration.Function(function)] = true
		}
	}
}

func (s *source) read(fset *token.FileSet, name string, syntax *ast.File) {
	docs := map[*ast.CommentGroup]*ast.FuncDecl{}
	for _, decl := range syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Recv != nil {
			continue
		}
		if mayClaim(name, function.Name.Name) && function.Doc != nil {
			docs[function.Doc] = function
		}
		if strings.HasSuffix(name, "_test.go") && testName.MatchString(function.Name.Name) {
			s.recordRuns(Test{function.Name.Name, name}, function)
		}
	}
	for _, group := range syntax.Comments {
		s.readComment(name, fset.Position(group.Pos()).Line, group, docs[group])
	}
}

// mayClaim reports whether a function of that file can claim guarantees.
func mayClaim(file, function string) bool {
	if strings.HasSuffix(file, "_test.go") {
		return testName.MatchString(function)
	}
	return ast.IsExported(function)
}

// recordRuns records the suites a test names. Tests of proptest itself name them
// without the package.
func (s *source) recordRuns(test Test, function *ast.FuncDecl) {
	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == suiteFolder {
				s.runs[n.Sel.Name] = append(s.runs[n.Sel.Name], test)
			}
		case *ast.Ident:
			if path.Dir(test.File) == suiteFolder {
				s.runs[n.Name] = append(s.runs[n.Name], test)
			}
		}
		return true
	})
}

// readComment reads the claim in a comment. owner is nil when the comment is
// not that of a function that can claim guarantees. Such a claim would be ignored,
// so it is a problem.
func (s *source) readComment(name string, line int, group *ast.CommentGroup, owner *ast.FuncDecl) {
	lines := strings.Split(group.Text(), "\n")
	for i, text := range lines {
		start := claimStart.FindStringSubmatch(text)
		if start == nil {
			continue
		}
		if owner == nil {
			s.problem("%s:%d: this claim is not in the comment of a Test, Fuzz or Example function or of an exported function of proptest", name, line)
			continue
		}
		found := claim{
			function: owner.Name.Name, file: name, line: line,
			suite: !strings.HasSuffix(name, "_test.go"),
		}
		for _, id := range claimed(start[1], lines[i+1:]) {
			if !claimID.MatchString(id) {
				s.problem("%s:%d: %q in the claim of %s is not the number of a guarantee", name, line, id, owner.Name.Name)
				continue
			}
			found.ids = append(found.ids, id)
		}
		s.claims = append(s.claims, found)
	}
}

// claimed lists the numbers of a claim. It goes on over the following lines as
// long as a line ends with a comma.
func claimed(first string, following []string) []string {
	text := strings.TrimSpace(first)
	for _, line := range following {
		if text != "" && !strings.HasSuffix(text, ",") {
			break
		}
		text += " " + strings.TrimSpace(line)
	}
	ids := strings.Split(strings.TrimSuffix(strings.TrimSpace(text), "."), ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return ids
}

func (s *source) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}
