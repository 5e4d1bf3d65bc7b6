package architecture

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
)

// checkState reports package-level variables that their own package changes,
// because all users in the process share them. A variable that is never written
// counts as a constant, unless it contains a value of package sync or
// sync/atomic, which is meant to change. Allowed are a sync.Pool, because it
// contains only memory, a sync.Once, the result of sync.OnceValue, and the tables
// of tests. Linters find the other cases: a variable that is declared without a
// value (gochecknoglobals), or that another package changes (reassign).
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
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.VAR && !f.test {
				for _, spec := range group.Specs {
					t.checkSynchronized(spec.(*ast.ValueSpec), report)
				}
			}
		}
	}
}

func (t *Tree) checkSynchronized(spec *ast.ValueSpec, report reporter) {
	for i, name := range spec.Names {
		of := t.info.Defs[name].Type()
		if of == types.Typ[types.Invalid] && len(spec.Values) == len(spec.Names) {
			of = t.returned(spec.Values[i])
		}
		if inside := synchronized(of, nil); inside != "" && !isOf(of, "sync.Pool") {
			report(t.at(name), "the package-level variable %s contains a %s; make it a field", name.Name, inside)
		}
	}
}

// returned returns the declared result of the function that expr calls. The type of the
// call itself is unknown if the type of an argument is.
func (t *Tree) returned(expr ast.Expr) types.Type {
	if call, ok := expr.(*ast.CallExpr); ok {
		if name, ok := call.Fun.(*ast.Ident); ok && t.info.Uses[name] != nil {
			if signature, ok := t.info.Uses[name].Type().(*types.Signature); ok && signature.Results().Len() == 1 {
				return signature.Results().At(0).Type()
			}
		}
	}
	return types.Typ[types.Invalid]
}

// synchronized returns the name of a type of package sync or sync/atomic that is
// part of a value of type of, or that it points to; "" if there is none.
func synchronized(of types.Type, within []types.Type) string {
	if slices.ContainsFunc(within, func(outer types.Type) bool { return types.Identical(outer, of) }) {
		return ""
	}
	within = append(within, of)
	switch of := of.(type) {
	case *types.Named:
		if of.Obj().Pkg() != nil && synchronizing[of.Obj().Pkg().Path()] != nil {
			return of.Obj().Pkg().Name() + "." + of.Obj().Name()
		}
		return synchronized(of.Underlying(), within)
	case *types.Struct:
		for field := range of.Fields() {
			if inside := synchronized(field.Type(), within); inside != "" {
				return inside
			}
		}
	case *types.Map:
		return cmp.Or(synchronized(of.Key(), within), synchronized(of.Elem(), within))
	case interface{ Elem() types.Type }: // a pointer, an array, a slice, a channel
		return synchronized(of.Elem(), within)
	}
	return ""
}

// isOf reports whether a type has this name.
func isOf(t types.Type, name string) bool {
	named, ok := t.(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Name()+"."+named.Obj().Name() == name
}

// synchronizing lists the types that synchronized finds.
var synchronizing = map[string][]string{
	"sync":        {"Cond", "Map", "Mutex", "Pool", "RWMutex", "WaitGroup"},
	"sync/atomic": {"Bool", "Int32", "Int64", "Pointer", "Uint32", "Uint64", "Uintptr", "Value"},
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
	t.info = types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
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

// An emptyImporter gives every import an empty package, but for the types of
// synchronizing.
type emptyImporter struct{}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func (emptyImporter) Import(target string) (*types.Package, error) {
	name := path.Base(target)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(target))
	}
	pkg := types.NewPackage(target, name)
	for _, typ := range synchronizing[target] {
		named := types.NewNamed(types.NewTypeName(token.NoPos, pkg, typ, nil), types.NewStruct(nil, nil), nil)
		if typ == "Pointer" {
			of := types.NewTypeName(token.NoPos, pkg, "T", nil)
			named.SetTypeParams([]*types.TypeParam{types.NewTypeParam(of, types.NewInterfaceType(nil, nil))})
		}
		pkg.Scope().Insert(named.Obj())
	}
	pkg.MarkComplete()
	return pkg, nil
}
