package architecture

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
)

// pureMark declares a file free of clocks, goroutines, locks, channels,
// randomness and I/O. It is a separate line above the package clause.
// Everything that a pure file calls in its own package must also be in pure
// files. So equal events at equal times give equal effects, and every failure
// can be replayed.
const pureMark = "//bowline:pure"

// impurePackages lists what a pure file may not import.
var impurePackages = []string{
	"crypto/rand/...", "io/...", "log/...", "math/rand/...", "net/...", "os/...", "sync/...", "syscall/...",
}

// clock lists the functions of package time that read the clock or wait for it.
var clock = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

func marked(syntax *ast.File) bool {
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			if comment.Pos() < syntax.Package && comment.Text == pureMark {
				return true
			}
		}
	}
	return false
}

func (t *Tree) checkPure(report reporter) {
	for _, f := range t.files {
		if f.path == "conn/core.go" && !f.pure {
			report(f.path, "%s is missing above the package clause", pureMark)
		}
		if !f.pure {
			continue
		}
		for spec, target := range f.imports {
			if anyMatches(impurePackages, target) {
				report(t.at(spec), "a pure file imports %s", target)
			}
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if what := t.impurity(node); what != "" {
				report(t.at(node), "a pure file %s", what)
			}
			return true
		})
	}
}

// impurity returns what makes a node impure, or "".
func (t *Tree) impurity(node ast.Node) string {
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
		return t.impureCallee(n)
	}
	return ""
}

func isChannel(typ types.Type) bool {
	_, ok := typ.Underlying().(*types.Chan)
	return ok
}

// impureName does this for a name of another package.
func (t *Tree) impureName(selector *ast.SelectorExpr) string {
	qualifier, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	imported, ok := t.info.Uses[qualifier].(*types.PkgName)
	if !ok {
		return ""
	}
	switch pkg, name := imported.Imported().Path(), selector.Sel.Name; {
	case pkg == "time" && slices.Contains(clock, name):
		return "reads the clock: time." + name
	case pkg == "context":
		return "depends on a context: context." + name
	}
	return ""
}

// impureCallee does this for a function or method of the same package.
func (t *Tree) impureCallee(name *ast.Ident) string {
	function, ok := t.info.Uses[name].(*types.Func)
	if !ok || !function.Pos().IsValid() {
		return ""
	}
	if receiver := function.Signature().Recv(); receiver != nil && types.IsInterface(receiver.Type()) {
		return ""
	}
	declaredIn := t.fset.Position(function.Pos()).Filename
	if slices.ContainsFunc(t.files, func(f *file) bool { return f.path == declaredIn && f.pure }) {
		return ""
	}
	return "calls " + function.Name() + " of " + path.Base(declaredIn) + ", which is not declared pure"
}
