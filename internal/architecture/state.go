package architecture

import (
	"go/ast"
	"go/token"
	"go/types"
)

// deliberate lists writes to other packages' variables that are meant, by who
// writes to what, each with its reason.
var deliberate = map[string]string{
	"transport/stdio os.Stdout":             "standard output is the protocol's, and a stray print would end up among its frames",
	"internal/fleet runtime.MemProfileRate": "the program samples its own heap, and there is no other way to say how finely",
}

// checkState finds package-level variables that change after their
// declaration, and those whose type has no other use than to change. A table
// that nothing writes to is as good as a constant.
func checkState(t *Tree, report reporter) {
	for _, f := range t.files {
		t.checkDeclarations(f, report)
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			for _, target := range t.written(node) {
				if variable := t.packageVariable(target); variable != nil {
					report(t.at(target), "the package-level variable %s is changed", variable.Name())
				} else if pkg, name, ok := t.external(target); ok && deliberate[f.dir+" "+pkg+"."+name] == "" {
					report(t.at(target), "%s.%s, a variable of another package, is changed", pkg, name)
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

func (t *Tree) checkDeclarations(f *file, report reporter) {
	for _, decl := range f.syntax.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.VAR {
			continue
		}
		for _, spec := range general.Specs {
			value := spec.(*ast.ValueSpec)
			if what := t.mutable(value); what != "" {
				report(t.at(value), "the package-level variable %s %s", value.Names[0].Name, what)
			}
		}
	}
}

// mutable says why a declaration can only be meant to change, or "".
func (t *Tree) mutable(spec *ast.ValueSpec) string {
	if variable := t.info.Defs[spec.Names[0]]; variable != nil && isChannel(variable.Type()) {
		return "is a channel"
	}
	if t.isLock(spec.Type) {
		return "is a lock or an atomic"
	}
	for _, value := range spec.Values {
		switch v := value.(type) {
		case *ast.CallExpr:
			if t.builtin(v) == "make" {
				return "is made empty, to be filled later"
			}
		case *ast.CompositeLit:
			if t.isLock(v.Type) {
				return "is a lock or an atomic"
			}
			if isMap(t.info.Types[v].Type) && len(v.Elts) == 0 {
				return "is an empty map, to be filled later"
			}
		}
	}
	return ""
}

func isMap(typ types.Type) bool {
	if typ == nil {
		return false
	}
	_, ok := typ.Underlying().(*types.Map)
	return ok
}

// isLock recognises the types of sync and sync/atomic. A sync.Pool holds
// nothing that anyone can observe.
func (t *Tree) isLock(typ ast.Expr) bool {
	if generic, ok := typ.(*ast.IndexExpr); ok { // atomic.Pointer[T]
		typ = generic.X
	}
	pkg, name, ok := t.external(typ)
	return ok && (pkg == "sync" && name != "Pool" || pkg == "sync/atomic")
}
