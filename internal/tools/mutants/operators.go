package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names are those that a package declares, and the use of which is changed.
type names struct {
	sizes  map[string]bool // constants of a time, a size or a number
	errors map[string]bool // variables that are one kind of error each
}

// declared collects the names of a package.
func (p *pkg) declared() names {
	n := names{sizes: map[string]bool{}, errors: map[string]bool{}}
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range value.Names {
					switch {
					case general.Tok == token.VAR && errorName.MatchString(name.Name):
						n.errors[name.Name] = true
					case general.Tok == token.CONST && i < len(value.Values) && isSize(value.Values[i], 2):
						n.sizes[name.Name] = true
					}
				}
			}
		}
	}
	return n
}

var errorName = regexp.MustCompile(`^[eE]rr[A-Z]`)

// isSize says whether an expression consists of numbers and units of time alone, and is not a
// number under least.
func isSize(expr ast.Expr, least int64) bool {
	if literal, ok := expr.(*ast.BasicLit); ok {
		n, err := strconv.ParseInt(strings.ReplaceAll(literal.Value, "_", ""), 10, 64)
		return err == nil && n >= least && literal.Kind == token.INT
	}
	return isConstant(expr)
}

func isConstant(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT
	case *ast.ParenExpr:
		return isConstant(e.X)
	case *ast.SelectorExpr:
		unit := []string{"Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
		return isName(e.X, "time") && slices.Contains(unit, e.Sel.Name)
	case *ast.BinaryExpr:
		return (e.Op == token.MUL || e.Op == token.SHL || e.Op == token.ADD || e.Op == token.SUB) && isConstant(e.X) && isConstant(e.Y)
	}
	return false
}

func isName(expr ast.Expr, name string) bool {
	ident, ok := expr.(*ast.Ident)
	return ok && ident.Name == name
}

// move adds the mutants of a node that are moves which a careful person makes.
func (m *mutator) move(node ast.Node) {
	m.resize(node)
	m.lose(node)
	switch n := node.(type) {
	case *ast.CallExpr:
		m.replaceContext(n)
		m.leaveNil(n)
	case *ast.CompositeLit:
		m.leaveNil(n)
	case *ast.BlockStmt:
		m.swapEach(n.List)
	case *ast.CaseClause:
		m.swapEach(n.Body)
	case *ast.CommClause:
		m.removeEach(n.Body)
		m.swapEach(n.Body)
	}
}

const leastLiteral = 10 // in a function, numbers under it are seldom sizes

// resize makes a time, a size or a number eight times as large, and an eighth. What it has
// changed, or is no size where it stands, it does not look into again.
func (m *mutator) resize(node ast.Node) {
	switch n := node.(type) {
	case *ast.SelectorExpr:
		m.leave(n.Sel)
	case *ast.KeyValueExpr:
		m.leave(n.Key)
	case *ast.ArrayType:
		m.leave(n.Len)
	case *ast.IndexExpr:
		m.leave(n.Index)
	case *ast.CaseClause:
		for _, value := range n.List {
			m.leave(value)
		}
	case *ast.AssignStmt:
		for _, name := range n.Lhs {
			m.leave(name)
		}
	case *ast.BinaryExpr:
		if n.Op == token.SHL || n.Op == token.SHR {
			defer m.leave(n.Y)
		}
	case *ast.CallExpr:
		if isName(n.Fun, "make") { // room is no bound
			switch n.Args[0].(type) {
			case *ast.MapType:
				m.leave(n)
			case *ast.ArrayType:
				m.leave(n.Args[len(n.Args)-1])
			}
		}
	}
	expr, ok := node.(ast.Expr)
	if !ok || m.left[node] {
		return
	}
	if name, ok := expr.(*ast.Ident); ok && m.names.sizes[name.Name] || isSize(expr, leastLiteral) {
		text := m.file.of(expr)
		if _, sum := expr.(*ast.BinaryExpr); sum {
			text = "(" + text + ")"
		}
		m.exchange(expr, "8 * "+text)
		m.exchange(expr, text+" / 8")
		m.leave(expr)
	}
}

// leave keeps resize from a node and what is in it.
func (m *mutator) leave(node ast.Node) {
	if node == nil {
		return
	}
	ast.Inspect(node, func(inner ast.Node) bool {
		m.left[inner] = true
		return true
	})
}

// exchange puts another expression in place of one.
func (m *mutator) exchange(expr ast.Expr, other string) {
	m.add(m.file.of(expr)+" => "+other, expr.Pos(), expr.End(), "("+other+")")
}

// lose makes an error one of another kind, loses what it wraps, and leaves out what it says.
func (m *mutator) lose(node ast.Node) {
	switch n := node.(type) {
	case *ast.BinaryExpr: // a comparison is negated
		for _, side := range []ast.Expr{n.X, n.Y} {
			if m.isError(side) {
				m.left[side] = true
			}
		}
	case *ast.CallExpr:
		if isCall(n, "errors", "Is") {
			m.leave(n.Args[1])
		}
		if isCall(n, "fmt", "Errorf") {
			if format, ok := n.Args[0].(*ast.BasicLit); ok && strings.Contains(format.Value, "%w") {
				m.replace(n, format.Pos(), format.End(), strings.ReplaceAll(format.Value, "%w", "%v"))
			}
		}
	case *ast.CompositeLit:
		if n.Type == nil || !errorType.MatchString(m.file.of(n.Type)) {
			break
		}
		for i, field := range n.Elts {
			end := n.Rbrace
			if i+1 < len(n.Elts) {
				end = n.Elts[i+1].Pos()
			}
			if _, named := field.(*ast.KeyValueExpr); named {
				m.add(m.file.of(n.Type)+": drop "+m.file.of(field), field.Pos(), end, "")
			}
		}
	}
	if expr, ok := node.(ast.Expr); ok && m.isError(expr) && !m.left[expr] {
		m.left[expr] = true
		m.add(m.file.of(expr)+" => another error", expr.Pos(), expr.End(), otherError)
	}
}

var errorType = regexp.MustCompile(`Error$`)

// isError says whether an expression is a variable that stands for one kind of error.
func (m *mutator) isError(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.Ident:
		return m.names.errors[e.Name]
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		return ok && m.file.imports[from.Name] && errorName.MatchString(e.Sel.Name)
	}
	return false
}

func isCall(call *ast.CallExpr, pkg, function string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isName(selector.X, pkg) && strings.HasPrefix(selector.Sel.Name, function)
}

// replaceContext passes on the parent of a context.
func (m *mutator) replaceContext(call *ast.CallExpr) {
	if !isCall(call, "context", "With") || len(call.Args) == 0 {
		return
	}
	parent := m.file.of(call.Args[0])
	switch name := call.Fun.(*ast.SelectorExpr).Sel.Name; {
	case name == "WithValue" || name == "WithoutCancel":
		m.add(m.file.of(call)+" => "+parent, call.Pos(), call.End(), parent)
	case name == "WithCancelCause":
		m.add(m.file.of(call)+" => "+parent, call.Pos(), call.End(), parent+", func(error) {}")
	default:
		var used strings.Builder // the compiler refuses variables that are not
		for _, arg := range call.Args[1:] {
			fmt.Fprintf(&used, "_ = %s;", m.file.of(arg))
		}
		m.add(m.file.of(call)+" => "+parent, call.Pos(), call.End(), parent+", func() {"+used.String()+"}")
	}
}

// leaveNil leaves a map nil that is to be made.
func (m *mutator) leaveNil(expr ast.Expr) {
	var typ ast.Expr
	switch e := expr.(type) {
	case *ast.CallExpr:
		if isName(e.Fun, "make") {
			typ = e.Args[0]
		}
	case *ast.CompositeLit:
		if len(e.Elts) == 0 {
			typ = e.Type
		}
	}
	if _, isMap := typ.(*ast.MapType); isMap {
		m.exchange(expr, m.file.of(typ)+"(nil)")
	}
}

// swapEach exchanges two statements that follow one another, where their order may matter: one
// of them calls something, sends or locks, or one names what the other assigns to. It does not
// matter when something is deferred, nor of two that are independent, and the compiler refuses to use what is
// declared later.
func (m *mutator) swapEach(list []ast.Stmt) {
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		define, ok := a.(*ast.AssignStmt)
		declares := ok && define.Tok == token.DEFINE && m.depends(b, a)
		if isDefer(a) != isDefer(b) || declares || ends(a) || ends(b) || isLock(a) && isLock(b) || m.file.of(a) == m.file.of(b) || m.independent(a, b) {
			continue
		}
		locks := isLock(a) || isLock(b)
		if locks || isSimple(a) && isSimple(b) && (acts(a) || acts(b) || m.depends(a, b) || m.depends(b, a)) {
			m.add("swap "+m.brief(a)+" and "+m.brief(b), a.Pos(), b.End(), m.file.of(b)+"\n"+m.file.of(a))
			m.found[len(m.found)-1].locks = locks
		}
	}
}

func isDefer(stmt ast.Stmt) bool {
	_, ok := stmt.(*ast.DeferStmt)
	return ok
}

// ends says whether nothing after a statement is run.
func ends(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.ReturnStmt, *ast.BranchStmt, *ast.LabeledStmt:
		return true
	}
	return false
}

func isSimple(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.AssignStmt, *ast.IncDecStmt:
		return true
	}
	return acts(stmt)
}

// acts says whether a statement is there for what it does elsewhere.
func acts(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.ExprStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
		return true
	}
	return false
}

// isLock says whether a statement locks or unlocks something.
func isLock(stmt ast.Stmt) bool {
	if s, ok := stmt.(*ast.ExprStmt); ok {
		if call, ok := s.X.(*ast.CallExpr); ok && len(call.Args) == 0 {
			method, ok := call.Fun.(*ast.SelectorExpr)
			return ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, method.Sel.Name)
		}
	}
	return false
}

// depends says whether a statement names what another one assigns to.
func (m *mutator) depends(stmt, on ast.Stmt) bool {
	var assigned []ast.Expr
	switch s := on.(type) {
	case *ast.AssignStmt:
		assigned = s.Lhs
	case *ast.IncDecStmt:
		assigned = []ast.Expr{s.X}
	}
	return slices.ContainsFunc(assigned, func(e ast.Expr) bool {
		if isName(e, "_") {
			return false
		}
		whole := regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(m.file.of(e)) + `($|\W)`)
		return whole.MatchString(m.file.of(stmt))
	})
}

// brief is a statement without the blocks that it holds.
func (m *mutator) brief(stmt ast.Stmt) string {
	text := m.file.of(stmt)
	ast.Inspect(stmt, func(node ast.Node) bool {
		if block, ok := node.(*ast.BlockStmt); ok {
			text = strings.TrimSpace(m.file.between(stmt.Pos(), min(block.Lbrace, stmt.Pos()+token.Pos(len(text)))))
			return false
		}
		return true
	})
	return text
}
