package architecture

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
)

// resolve finds out what each identifier stands for, with the type checker but
// without the packages a file imports: names from outside stay unresolved, and
// the errors that follow from it say nothing about the tree.
func (t *Tree) resolve() {
	t.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}
	config := types.Config{
		Importer: hollowImporter{},
		Error:    func(error) {},
	}
	for key, files := range t.packages() {
		var syntax []*ast.File
		for _, f := range files {
			syntax = append(syntax, f.syntax)
		}
		pkg := types.NewPackage(path.Join(t.module, key.dir), key.name)
		_ = types.NewChecker(&config, t.fset, pkg, t.info).Files(syntax) // unresolved imports are expected
		for _, f := range files {
			f.pkg = pkg
		}
	}
}

type packageKey struct{ dir, name string }

// packages groups the files as the compiler does: a package with its internal
// tests, and its external tests apart.
func (t *Tree) packages() map[packageKey][]*file {
	groups := map[packageKey][]*file{}
	for _, f := range t.files {
		key := packageKey{f.dir, f.syntax.Name.Name}
		groups[key] = append(groups[key], f)
	}
	return groups
}

// A hollowImporter gives every import an empty package, but for testing, which
// gets the methods that skip a test.
type hollowImporter struct{}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func (hollowImporter) Import(target string) (*types.Package, error) {
	name := path.Base(target)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(target))
	}
	pkg := types.NewPackage(target, name)
	if target == "testing" {
		for _, handle := range []string{"T", "B", "F", "TB"} {
			pkg.Scope().Insert(skippable(pkg, handle))
		}
	}
	pkg.MarkComplete()
	return pkg, nil
}

// skippable is a type with Skip, Skipf and SkipNow.
func skippable(pkg *types.Package, name string) types.Object {
	object := types.NewTypeName(token.NoPos, pkg, name, nil)
	named := types.NewNamed(object, types.NewStruct(nil, nil), nil)
	for _, method := range []string{"Skip", "Skipf", "SkipNow"} {
		receiver := types.NewVar(token.NoPos, pkg, "", named)
		signature := types.NewSignatureType(receiver, nil, nil, nil, nil, false)
		named.AddMethod(types.NewFunc(token.NoPos, pkg, method, signature))
	}
	return object
}

// external splits an expression such as time.Now into the import path and the
// name; ok is false for anything that is not a name from another package.
func (t *Tree) external(expr ast.Expr) (pkg, name string, ok bool) {
	selector, isSelector := expr.(*ast.SelectorExpr)
	if !isSelector {
		return "", "", false
	}
	ident, isIdent := selector.X.(*ast.Ident)
	if !isIdent {
		return "", "", false
	}
	imported, isPackage := t.info.Uses[ident].(*types.PkgName)
	if !isPackage {
		return "", "", false
	}
	return imported.Imported().Path(), selector.Sel.Name, true
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
	if ident, ok := call.Fun.(*ast.Ident); ok {
		if builtin, ok := t.info.Uses[ident].(*types.Builtin); ok {
			return builtin.Name()
		}
	}
	return ""
}
