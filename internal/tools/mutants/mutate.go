package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"hash/fnv"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// A mutant is a package with one text in one function replaced.
type mutant struct {
	number   int    // from 1, in the binary
	name     string // stays the same while the code around it changes, also when its function moves to another file
	at       string // file:line
	function *ast.FuncDecl
	file     *file
	from, to token.Pos
	text     string // what takes the place of what lies between
	moved    bool   // one of those in operators.go: if it lives, it needs no reason yet
	locks    bool   // by moving something across a lock, which the race detector may notice
}

// mutants lists every mutant of a package, in the order of the text.
func (p *pkg) mutants() []mutant {
	var all []mutant
	n := p.declared()
	for _, f := range p.files {
		for _, function := range f.functions {
			m := mutator{pkg: p, file: f, function: function, names: n, seen: map[string]int{}, left: map[ast.Node]bool{}}
			ast.Inspect(function.Body, m.visit)
			all = append(all, m.found...)
		}
	}
	for i := range all {
		all[i].number = i + 1
	}
	return all
}

// sample splits mutants into those that are judged and the others: of files that were touched
// the first so many, and of all one in a part. The order of their hashes decides which are first.
func sample(all []mutant, o *options) (judged, left []mutant) {
	touched := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !slices.Contains(o.touched, m.file.name) })
	slices.SortStableFunc(touched, func(a, b mutant) int { return cmp.Compare(number(a.name), number(b.name)) })
	most := map[string]bool{}
	for _, m := range touched[:min(len(touched), o.most)] {
		most[m.name] = true
	}
	o.most -= len(most)
	for _, m := range all {
		if (most[m.name] || number(m.name)%uint32(max(o.part, 1)) == 0) && (o.only == nil || o.only.MatchString(m.name)) {
			judged = append(judged, m)
		} else {
			left = append(left, m)
		}
	}
	return judged, left
}

// number is drawn from nothing but a mutant's name, so that an edit elsewhere does not choose
// other mutants.
func number(name string) uint32 {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	return hash.Sum32()
}

// A mutator collects the mutants of one function.
type mutator struct {
	pkg      *pkg
	file     *file
	function *ast.FuncDecl
	names    names
	found    []mutant
	seen     map[string]int
	left     map[ast.Node]bool // by the operators that look into expressions
}

// What an operator, or the name of a built-in function, is replaced by.
var (
	comparisons = map[token.Token][]token.Token{
		token.LSS: {token.LEQ, token.GEQ},
		token.LEQ: {token.LSS, token.GTR},
		token.GTR: {token.GEQ, token.LEQ},
		token.GEQ: {token.GTR, token.LSS},
		token.EQL: {token.NEQ},
		token.NEQ: {token.EQL},
	}
	operators = map[token.Token][]token.Token{
		token.ADD: {token.SUB}, token.SUB: {token.ADD},
		token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
		token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
	}
	statements = map[token.Token][]token.Token{
		token.INC: {token.DEC}, token.DEC: {token.INC},
		token.ADD_ASSIGN: {token.SUB_ASSIGN, token.ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN, token.ASSIGN},
		token.MUL_ASSIGN: {token.QUO_ASSIGN, token.ASSIGN}, token.QUO_ASSIGN: {token.MUL_ASSIGN, token.ASSIGN},
		token.OR_ASSIGN: {token.ASSIGN}, token.AND_ASSIGN: {token.ASSIGN},
		token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
	}
	opposites = map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}
)

func (m *mutator) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.BinaryExpr:
		m.swap(n, n.OpPos, n.Op, comparisons[n.Op])
		m.swap(n, n.OpPos, n.Op, operators[n.Op])
		if n.Op == token.LAND || n.Op == token.LOR {
			m.keep(n, n.X, n.Y)
			m.keep(n, n.Y, n.X)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			m.replace(n, n.OpPos, n.X.Pos(), "")
		}
	case *ast.IncDecStmt:
		m.swap(n, n.TokPos, n.Tok, statements[n.Tok])
	case *ast.AssignStmt:
		m.swap(n, n.TokPos, n.Tok, statements[n.Tok])
		m.flipEach(n, n.Rhs)
	case *ast.BranchStmt:
		m.swap(n, n.TokPos, n.Tok, statements[n.Tok])
	case *ast.CallExpr:
		if name, ok := n.Fun.(*ast.Ident); ok {
			m.rename(n, name)
		}
		m.flipEach(n, n.Args)
	case *ast.ReturnStmt:
		m.flipEach(n, n.Results)
	case *ast.KeyValueExpr:
		m.flipEach(n, []ast.Expr{n.Value})
	case *ast.BlockStmt:
		m.removeEach(n.List)
	case *ast.CaseClause:
		m.removeEach(n.Body)
	}
	before := len(m.found)
	m.move(node)
	for i := range m.found[before:] {
		m.found[before+i].moved = true
	}
	return true
}

func (m *mutator) swap(node ast.Node, at token.Pos, old token.Token, others []token.Token) {
	for _, other := range others {
		m.replace(node, at, at+token.Pos(len(old.String())), other.String())
	}
}

// flipEach turns true into false, and false into true.
func (m *mutator) flipEach(whole ast.Node, values []ast.Expr) {
	for _, value := range values {
		if name, ok := value.(*ast.Ident); ok && (name.Name == "true" || name.Name == "false") {
			m.rename(whole, name)
		}
	}
}

func (m *mutator) rename(whole ast.Node, name *ast.Ident) {
	if other := opposites[name.Name]; other != "" {
		m.replace(whole, name.Pos(), name.End(), other)
	}
}

// removeEach leaves out one statement at a time. What declares a name, or
// returns a result, cannot be left out; what holds others is not.
func (m *mutator) removeEach(list []ast.Stmt) {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt:
		default:
			continue
		}
		text := m.file.of(stmt)
		m.add("remove "+text, stmt.Pos(), stmt.End(), "if false { "+text+" }") // still a use of its variables
	}
}

// keep leaves out one side of a condition.
func (m *mutator) keep(whole *ast.BinaryExpr, kept, dropped ast.Expr) {
	text := m.file.of(kept)
	unused := fmt.Sprintf("(%s || false && (%s))", text, m.file.of(dropped)) // but a use of its variables
	m.add(m.file.of(whole)+" => "+text, whole.Pos(), whole.End(), unused)
}

// replace adds a mutant that is named by the node it is in, before and after.
func (m *mutator) replace(node ast.Node, from, to token.Pos, text string) {
	before, after := m.file.of(node), m.file.between(node.Pos(), from)+text+m.file.between(to, node.End())
	m.add(before+" => "+after, from, to, text)
}

var comment = regexp.MustCompile(`//[^\n]*`)

func (m *mutator) add(change string, from, to token.Pos, text string) {
	change = strings.Join(strings.Fields(comment.ReplaceAllString(change, "")), " ")
	name := path.Dir(m.file.name) + " " + declaration.Function(m.function) + ": " + change
	m.seen[name]++
	if again := m.seen[name]; again > 1 {
		name = fmt.Sprintf("%s (%d)", name, again)
	}
	at := fmt.Sprintf("%s:%d", m.file.name, m.file.start.Line(from))
	m.found = append(m.found, mutant{
		name: name, at: at, function: m.function, file: m.file, from: from, to: to, text: text,
	})
}
