package architecture

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// What a pure file may not import, each with everything below it.
var impurePackages = []string{
	"crypto/rand/...", "io/...", "log/...", "math/rand/...", "net/...", "os/...", "sync/...", "syscall/...",
}

// The functions of package time that read the clock or wait for it.
var clock = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

func checkCore(t *Tree, report reporter) {
	for _, f := range t.files {
		if f.path == "conn/core.go" && !f.pure {
			report(f.path, "%s is missing above the package clause", pureMark)
		}
	}
}

func checkPure(t *Tree, report reporter) {
	home := map[string]*file{}
	for _, f := range t.files {
		home[f.path] = f
	}
	for _, f := range t.files {
		if !f.pure {
			continue
		}
		for spec, target := range f.imports {
			if anyMatches(impurePackages, target) {
				report(t.at(spec), "a pure file imports %s", target)
			}
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if what := t.impurity(node, home); what != "" {
				report(t.at(node), "a pure file %s", what)
			}
			return true
		})
	}
}

// impurity says what makes a node impure, or "".
func (t *Tree) impurity(node ast.Node, home map[string]*file) string {
	switch n := node.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		return "selects"
	case *ast.SendStmt:
		return "sends on a channel"
	case *ast.ChanType:
		return "uses a channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "receives from a channel"
		}
	case *ast.RangeStmt:
		if ranged := t.info.Types[n.X].Type; ranged != nil && isChannel(ranged) {
			return "receives from a channel"
		}
	case *ast.CallExpr:
		if t.builtin(n) == "close" {
			return "closes a channel"
		}
	case *ast.SelectorExpr:
		return t.impureName(n)
	case *ast.Ident:
		return t.impureCallee(n, home)
	}
	return ""
}

func isChannel(typ types.Type) bool {
	_, ok := typ.Underlying().(*types.Chan)
	return ok
}

// impureName judges a name of another package. context.Background is allowed
// because looplab/fsm asks for a context it does not need.
func (t *Tree) impureName(selector *ast.SelectorExpr) string {
	pkg, name, ok := t.external(selector)
	switch {
	case !ok:
		return ""
	case pkg == "time" && slices.Contains(clock, name):
		return "reads the clock: time." + name
	case pkg == "context" && name != "Background":
		return "depends on a context: context." + name
	}
	return ""
}

// impureCallee judges a function or method of the same package: what a pure
// file calls is pure only when its file is.
func (t *Tree) impureCallee(ident *ast.Ident, home map[string]*file) string {
	function, ok := t.info.Uses[ident].(*types.Func)
	if !ok || !function.Pos().IsValid() {
		return ""
	}
	if receiver := function.Signature().Recv(); receiver != nil && types.IsInterface(receiver.Type()) {
		return ""
	}
	declared := home[t.fset.Position(function.Pos()).Filename]
	if declared == nil || declared.pure {
		return ""
	}
	return "calls " + function.Name() + " of " + strings.TrimPrefix(declared.path, declared.dir+"/") + ", which is not declared pure"
}
