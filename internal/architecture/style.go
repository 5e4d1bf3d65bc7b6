package architecture

import (
	"go/ast"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

func checkAfter(t *Tree, report reporter) {
	t.inspectSelectors(report, func(f *file, pkg, name string) bool {
		return !f.test && pkg == "time" && name == "After"
	})
}

func checkSleep(t *Tree, report reporter) {
	t.inspectSelectors(report, func(f *file, pkg, name string) bool {
		return f.test && pkg == "time" && name == "Sleep"
	})
}

// inspectSelectors reports the names of other packages that are unwanted.
func (t *Tree) inspectSelectors(report reporter, unwanted func(f *file, pkg, name string) bool) {
	for _, f := range t.files {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			expr, isExpr := node.(ast.Expr)
			if !isExpr {
				return true
			}
			if pkg, name, ok := t.external(expr); ok && unwanted(f, pkg, name) {
				report(t.at(node), "%s.%s is used", pkg, name)
			}
			return true
		})
	}
}

func checkInit(t *Tree, report reporter) {
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if ok && function.Recv == nil && function.Name.Name == "init" {
				report(t.at(function), "func init is declared")
			}
		}
	}
}

var emptyNames = []string{"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

func checkNames(t *Tree, report reporter) {
	for _, f := range t.files {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(emptyNames, name) || slices.Contains(emptyNames, path.Base(f.dir)) {
			report(t.at(f.syntax), "package %s in %s says nothing", name, f.dir)
		}
	}
}

// checkSkips looks for the Skip methods of package testing, however they are
// reached. rapid's Skip draws another input and skips no test.
func checkSkips(t *Tree, report reporter) {
	for _, f := range t.files {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			ident, isIdent := node.(*ast.Ident)
			if !isIdent {
				return true
			}
			method, isMethod := t.info.Uses[ident].(*types.Func)
			if isMethod && method.Pkg() != nil && method.Pkg().Path() == "testing" {
				report(t.at(node), "%s is called on a test", method.Name())
			}
			return true
		})
	}
}

func checkDotImports(t *Tree, report reporter) {
	for _, f := range t.files {
		for spec, target := range f.imports {
			if spec.Name != nil && spec.Name.Name == "." {
				report(t.at(spec), "%s is imported with a dot", target)
			}
		}
	}
}

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

func checkUnfinished(t *Tree, report reporter) {
	for _, f := range t.files {
		for _, group := range f.syntax.Comments {
			for _, comment := range group.List {
				if mark := unfinished.FindString(comment.Text); mark != "" {
					report(t.at(comment), "%s is left in a comment", mark)
				}
			}
		}
	}
}

// checkLeaks wants goleak in every folder that has a test function.
func checkLeaks(t *Tree, report reporter) {
	watched, tested := map[string]bool{}, map[string]*file{}
	for _, f := range t.files {
		if !f.test {
			continue
		}
		for _, target := range f.imports {
			watched[f.dir] = watched[f.dir] || target == "go.uber.org/goleak"
		}
		if hasTests(f.syntax) {
			tested[f.dir] = f
		}
	}
	for dir := range tested {
		if !watched[dir] {
			report(dir, "no test file imports go.uber.org/goleak")
		}
	}
}

func hasTests(syntax *ast.File) bool {
	for _, decl := range syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && function.Recv == nil && function.Name.Name != "TestMain" && strings.HasPrefix(function.Name.Name, "Test") {
			return true
		}
	}
	return false
}
