package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// resolve finds the types of a package, as far as it compiles: of what has none nothing is proved.
func (p *pkg) resolve(ctx context.Context) error {
	list, err := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-export", "-f", "{{.ImportPath}}\t{{.Export}}", p.path).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w", p.path, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		imported, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[imported] = file
	}
	open := func(imported string) (io.ReadCloser, error) { return os.Open(exports[imported]) }
	config := types.Config{Importer: importer.ForCompiler(p.fset, "gc", open), Error: func(error) {}}
	var all []*ast.File
	for _, f := range p.files {
		all = append(all, f.syntax)
	}
	p.types = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	_, _ = config.Check(p.path, p.fset, all, p.types) // it says what does not compile, as the compiler will
	return nil
}

// independent says whether it is proved that nobody can tell in which order two statements of a function run: one
// only sets local variables, from local variables and constants, cannot fail, and the other one does not
// use these variables; or both set headers of different names.
func (m *mutator) independent(a, b ast.Stmt) bool {
	if m.pkg.types == nil {
		return false
	}
	l := &locals{types: m.pkg.types, function: m.function}
	return l.commutes(a, b) || l.commutes(b, a) || l.headers(a, b)
}

// locals are the variables of a function.
type locals struct {
	types    *types.Info
	function *ast.FuncDecl
}

// commutes says whether a statement only sets local variables that another one, which may do anything
// else, does not use.
func (l *locals) commutes(quiet, other ast.Stmt) bool {
	reads, writes, ok := l.effects(quiet)
	if !ok || jumps(other) {
		return false
	}
	for _, name := range writes {
		if uses(other, name.Name) { // or another variable, if it is declared here
			return false
		}
	}
	changed := l.assigned(other)
	return !slices.ContainsFunc(reads, func(v *types.Var) bool { return slices.Contains(changed, v) })
}

// jumps says whether a statement may go on elsewhere in the function.
func jumps(stmt ast.Stmt) (found bool) {
	ast.Inspect(stmt, func(node ast.Node) bool {
		_, jump := node.(*ast.BranchStmt)
		found = found || jump
		return true
	})
	return found
}

func uses(stmt ast.Stmt, name string) (found bool) {
	ast.Inspect(stmt, func(node ast.Node) bool {
		ident, ok := node.(*ast.Ident)
		found = found || ok && ident.Name == name
		return true
	})
	return found
}

// effects are what a statement reads and writes, if it does nothing but to set local variables, and cannot fail.
func (l *locals) effects(stmt ast.Stmt) (reads []*types.Var, writes []*ast.Ident, ok bool) {
	var values []ast.Expr
	switch s := stmt.(type) {
	case *ast.IncDecStmt:
		name, isName := s.X.(*ast.Ident)
		if !isName || !l.isPrivate(name) {
			return nil, nil, false
		}
		values, writes = []ast.Expr{s.X}, append(writes, name)
	case *ast.AssignStmt:
		if s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
			return nil, nil, false
		}
		for _, left := range s.Lhs {
			name, isName := left.(*ast.Ident)
			fresh := isName && l.types.Defs[name] != nil
			if !fresh && (!isName || !l.isPrivate(name)) {
				return nil, nil, false
			}
			writes = append(writes, name)
		}
		values = s.Rhs
	case *ast.DeclStmt:
		declared, isVar := s.Decl.(*ast.GenDecl)
		if !isVar || declared.Tok != token.VAR {
			return nil, nil, false
		}
		for _, spec := range declared.Specs {
			writes = append(writes, spec.(*ast.ValueSpec).Names...)
			values = append(values, spec.(*ast.ValueSpec).Values...)
		}
	default:
		return nil, nil, false
	}
	for _, value := range values {
		more, ok := l.quiet(value)
		if !ok {
			return nil, nil, false
		}
		reads = append(reads, more...)
	}
	return reads, writes, true
}

// quiet says whether an expression cannot fail and reads nothing but local variables, and which.
func (l *locals) quiet(expr ast.Expr) (reads []*types.Var, ok bool) {
	typed := l.types.Types[expr]
	if typed.Value != nil || typed.IsNil() {
		return nil, true
	}
	var parts []ast.Expr
	switch e := expr.(type) {
	case *ast.Ident:
		v, isVar := l.types.Uses[e].(*types.Var)
		return []*types.Var{v}, isVar && l.isPrivate(e)
	case *ast.ParenExpr:
		parts = []ast.Expr{e.X}
	case *ast.UnaryExpr:
		if _, isLiteral := e.X.(*ast.CompositeLit); e.Op == token.ARROW || e.Op == token.AND && !isLiteral {
			return nil, false
		}
		parts = []ast.Expr{e.X}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.QUO, token.REM, token.SHL, token.SHR, token.EQL, token.NEQ: // some numbers, and what some interfaces hold, make it fail
			return nil, false
		}
		parts = []ast.Expr{e.X, e.Y}
	case *ast.CallExpr:
		if parts, ok = l.isHarmlessCall(e); !ok {
			return nil, false
		}
	case *ast.CompositeLit:
		_, isMap := typed.Type.Underlying().(*types.Map)
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Value
			}
			parts = append(parts, element)
		}
		if isMap && len(parts) > 0 { // a key may fail
			return nil, false
		}
	default:
		return nil, false
	}
	for _, part := range parts {
		more, ok := l.quiet(part)
		if !ok {
			return nil, false
		}
		reads = append(reads, more...)
	}
	return reads, true
}

// isPlain says whether a value is a number, a text, a bool or a pointer.
func isPlain(typ types.Type) bool {
	switch typ.Underlying().(type) {
	case *types.Basic, *types.Pointer:
		return true
	}
	return false
}

// isHarmlessCall says whether a call is len, cap, a make whose sizes are constants, or a conversion between numbers
// and texts; all of them never fail. It returns what they are called with.
func (l *locals) isHarmlessCall(call *ast.CallExpr) (args []ast.Expr, ok bool) {
	function := l.types.Types[call.Fun]
	switch {
	case function.IsBuiltin() && isName(call.Fun, "make"):
		varies := func(arg ast.Expr) bool { return l.types.Types[arg].Value == nil }
		return nil, !slices.ContainsFunc(call.Args[1:], varies)
	case function.IsBuiltin():
		_, isChan := l.types.Types[call.Args[0]].Type.Underlying().(*types.Chan)
		_, isMap := l.types.Types[call.Args[0]].Type.Underlying().(*types.Map)
		return call.Args, (isName(call.Fun, "len") || isName(call.Fun, "cap")) && !isChan && !isMap // which others fill
	case function.IsType() && len(call.Args) == 1:
		return call.Args, isPlain(function.Type) && isPlain(l.types.Types[call.Args[0]].Type)
	}
	return nil, false
}

// isPrivate says whether a variable is declared in the function, and only seen by what names it outside of other
// functions: it is no result, which the caller sees after a panic, no function in this one uses it, and
// nobody has its address.
func (l *locals) isPrivate(name *ast.Ident) bool {
	variable, ok := l.types.Uses[name].(*types.Var)
	inside := ok && l.function.Pos() < variable.Pos() && variable.Pos() < l.function.End()
	if results := l.function.Type.Results; !inside || results != nil && results.Pos() <= variable.Pos() && variable.Pos() < results.End() {
		return false
	}
	private := true
	ast.Inspect(l.function, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncLit:
			private = private && !l.names(n, variable)
		case *ast.UnaryExpr:
			private = private && !(n.Op == token.AND && l.root(n.X) == variable)
		case *ast.SliceExpr: // of an array
			private = private && l.root(n.X) != variable
		case *ast.SelectorExpr: // a method may have a pointer receiver
			selection := l.types.Selections[n]
			private = private && !(selection != nil && selection.Kind() == types.MethodVal && l.root(n.X) == variable)
		}
		return private
	})
	return private
}

func (l *locals) names(node ast.Node, variable *types.Var) (found bool) {
	ast.Inspect(node, func(inner ast.Node) bool {
		name, ok := inner.(*ast.Ident)
		found = found || ok && (l.types.Uses[name] == variable || l.types.Defs[name] == variable)
		return true
	})
	return found
}

// root is the variable that an expression is a part of, or nil.
func (l *locals) root(expr ast.Expr) *types.Var {
	for {
		switch e := expr.(type) {
		case *ast.ParenExpr:
			expr = e.X
		case *ast.SelectorExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			found, _ := l.types.Uses[e].(*types.Var)
			return found
		default:
			return nil
		}
	}
}

// assigned lists the variables that a statement assigns to, as a whole or in part.
func (l *locals) assigned(stmt ast.Stmt) (all []*types.Var) {
	ast.Inspect(stmt, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				all = append(all, l.root(left))
			}
		case *ast.IncDecStmt:
			all = append(all, l.root(n.X))
		case *ast.RangeStmt:
			all = append(all, l.root(n.Key), l.root(n.Value))
		}
		return true
	})
	return all
}

// headers says whether two statements set headers of different names to constants.
func (l *locals) headers(a, b ast.Stmt) bool {
	of, name := l.header(a)
	other, second := l.header(b)
	return of != nil && other != nil && types.ExprString(of) == types.ExprString(other) && name != second
}

// header is the name that a statement like h.Set("Accept", "text/plain") sets, and what h is.
func (l *locals) header(stmt ast.Stmt) (of ast.Expr, name string) {
	s, ok := stmt.(*ast.ExprStmt)
	if !ok {
		return nil, ""
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return nil, ""
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Set" {
		return nil, ""
	}
	for expr := method.X; ; { // a variable, or a field of one
		if field, ok := expr.(*ast.SelectorExpr); ok {
			expr = field.X
		} else if _, ok := expr.(*ast.Ident); !ok {
			return nil, ""
		} else {
			break
		}
	}
	key, value := l.types.Types[call.Args[0]].Value, l.types.Types[call.Args[1]].Value
	if typ := l.types.Types[method.X].Type; key == nil || value == nil || typ == nil || types.TypeString(typ, nil) != "net/http.Header" {
		return nil, ""
	}
	return method.X, textproto.CanonicalMIMEHeaderKey(constant.StringVal(key))
}
