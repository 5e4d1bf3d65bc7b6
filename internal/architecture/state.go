package architecture

import (
	"go/ast"
	"go/types"
	"path"
	"regexp"
)

// checkState reports package-level variables that their own package changes:
// every user of the process shares them. A table that nothing writes to is a
// constant. Linters see the rest: a variable that is declared without a value
// (gochecknoglobals), or that another package changes (reassign).
func (t *Tree) checkState(report reporter) {
	for _, f := range t.files {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			for _, target := range t.written(node) {
				if variable := t.packageVariable(target); variable != nil {
					report(t.at(target), "the package-level variable %s is changed; make it a field", variable.Name())
				}
			}
			return true
		})
	}
}

// written lists what a statement writes to.
func (t *Tree) written(node ast.Node) []ast.Expr {
	switch n := node.(type) {
	case *ast.AssignStmt:
		return n.Lhs // what := declares is not package-level, and so not found
	case *ast.RangeStmt:
		return []ast.Expr{n.Key, n.Value}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if name := t.builtin(n); (name == "delete" || name == "clear") && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// packageVariable is the package-level variable that expr is or is part of.
func (t *Tree) packageVariable(expr ast.Expr) *types.Var {
	switch e := expr.(type) {
	case *ast.Ident:
		variable, ok := t.info.Uses[e].(*types.Var)
		if ok && variable.Pkg() != nil && variable.Parent() == variable.Pkg().Scope() {
			return variable
		}
	case *ast.SelectorExpr:
		return t.packageVariable(e.X)
	case *ast.IndexExpr:
		return t.packageVariable(e.X)
	case *ast.StarExpr:
		return t.packageVariable(e.X)
	case *ast.ParenExpr:
		return t.packageVariable(e.X)
	}
	return nil
}

// builtin is the name of the built-in function that call calls, or "".
func (t *Tree) builtin(call *ast.CallExpr) string {
	if name, ok := call.Fun.(*ast.Ident); ok {
		if builtin, ok := t.info.Uses[name].(*types.Builtin); ok {
			return builtin.Name()
		}
	}
	return ""
}

// resolve type-checks every package without what it imports: names from outside
// stay unresolved, and the errors that follow say nothing about the tree. Like
// the compiler, it takes a package with its internal tests, and its external
// tests apart.
func (t *Tree) resolve() {
	t.info = types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	packages := map[[2]string][]*ast.File{}
	for _, f := range t.files {
		key := [2]string{f.dir, f.syntax.Name.Name}
		packages[key] = append(packages[key], f.syntax)
	}
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
	for key, files := range packages {
		_, _ = config.Check(key[0], t.fset, files, &t.info)
	}
}

// An emptyImporter gives every import an empty package.
type emptyImporter struct{}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func (emptyImporter) Import(target string) (*types.Package, error) {
	name := path.Base(target)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(target))
	}
	pkg := types.NewPackage(target, name)
	pkg.MarkComplete()
	return pkg, nil
}
