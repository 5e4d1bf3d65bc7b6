package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exported lists a package of one file.
func exported(t *testing.T, source string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check(module+"/p", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return list([]*types.Package{p})
}

func TestLines(t *testing.T) {
	for name, test := range map[string]struct{ source, want string }{
		"constants and variables": {`const A = 1; const b = 2; var C error; type T int; const D T = 3`,
			"const A untyped int = 1\nconst D T = 3\ntype T int\nvar C error"},
		"a function without names": {`func F(a int, b ...func(c string) (d int, e error)) (f []string, g map[string]*bool) { return }; func f() {}`,
			"func F(int, ...func(string) (int, error)) ([]string, map[string]*bool)"},
		"type parameters": {`func F[T any](T) {}; type L[T comparable] struct { E T }; func (*L[T]) M(T) {}`,
			"func F[T any](T)\nmethod (*L) M(T)\ntype L struct, E T\ntype L[T comparable] struct"},
		"methods of values and of pointers": {`type T int; func (T) A() {}; func (*T) B() {}; func (T) c() {}`,
			"method (*T) B()\nmethod (T) A()\ntype T int"},
		"a struct":           {`type T struct { A, b int; C [2]func(x int) }`, "type T struct\ntype T struct, A int\ntype T struct, C [2]func(int)"},
		"an embedded struct": {`type e struct { A int; b int }; func (e) M() {}; type F struct { G int }; type T struct { e; F }`, "method (T) M()\ntype F struct\ntype F struct, G int\ntype T struct\ntype T struct, A int\ntype T struct, embeds F"},
		"an interface":       {`type I interface { B(x int); A() }`, "type I interface { A, B }\ntype I interface, A()\ntype I interface, B(int)"},
		"an interface that only we implement": {`type I interface { A(); b() }`,
			"type I interface { unexported methods }\ntype I interface, A()"},
		"a constraint": {`type I interface { ~int | string }`, "type I interface{~int | string}"},
		"an alias":     {`type A = []int`, "type A = []int"},
	} {
		t.Run(name, func(t *testing.T) {
			want := "pkg p, " + strings.ReplaceAll(test.want, "\n", "\npkg p, ")
			if diff := cmp.Diff(want, strings.Join(exported(t, test.source), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Guarantees: G-0105.2
func TestWhatHasToBeMentioned(t *testing.T) {
	for name, test := range map[string]struct{ before, after, text, unsaid string }{
		"a new function":     {before: `func F() {}`, after: `func F() {}; func G() {}`},
		"a new field":        {before: `type T struct { A int }`, after: `type T struct { A, B int }`},
		"a parameter's name": {before: `func F(a int) {}`, after: `func F(b int) {}`},
		"a function that is gone": {before: `func F() {}; func G() {}`, after: `func G() {}`, text: "`FF` and p.G",
			unsaid: "pkg p, func F()"},
		"a function that is gone, and mentioned": {before: `func F() {}; func G() {}`, after: `func G() {}`, text: "- `p.F` is gone."},
		"another parameter":                      {before: `func F(int) {}`, after: `func F(string) {}`, unsaid: "pkg p, func F(int)"},
		"another value":                          {before: `const C = 1`, after: `const C = 2`, unsaid: "pkg p, const C untyped int = 1"},
		"a field of another type":                {before: `type T struct { A int }`, after: `type T struct { A bool }`, text: "`T` and `A`", unsaid: "pkg p, type T struct, A int"},
		"a field of another type, mentioned":     {before: `type T struct { A int }`, after: `type T struct { A bool }`, text: "`p.T.A` is a bool"},
		"a method of pointers now":               {before: `type T int; func (T) M() {}`, after: `type T int; func (*T) M() {}`, unsaid: "pkg p, method (T) M()"},
		"a method that implementors lack":        {before: `type I interface { A() }`, after: `type I interface { A(); B() }`, unsaid: "pkg p, type I interface { A }"},
		"a method that only we implement":        {before: `type I interface { A(); b() }`, after: `type I interface { A(); B(); b() }`},
		"a type that is gone":                    {before: `type T struct { A int }; func (T) M() {}; type U int`, after: `type U int`, text: "`T` is gone"},
		"a package that is gone":                 {before: `type T struct { A int }`, text: "Package `p` is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			got := unmentioned(exported(t, test.before), exported(t, test.after), test.text)
			if got := strings.Join(got, "\n"); got != test.unsaid {
				t.Errorf("got %q, want %q", got, test.unsaid)
			}
		})
	}
}

func TestChangedSections(t *testing.T) {
	const changelog = "# Changelog\n*Changed*\n## [Unreleased]\n### Servers\na\n### Changed\nb\n\nc\n### Speed\nd\n## [0.2.0] - x\n### Changed\ne\n## [0.1.0] - y\n### Changed\nf\n"
	for version, want := range map[string]string{"0.2.0": "b\n\nc\n", "0.1.0": "b\n\nc\ne\n", "": "b\n\nc\ne\nf\n"} {
		if got := changed(changelog, version); got != want {
			t.Errorf("since %q: got %q, want %q", version, got, want)
		}
	}
}

// Guarantees: G-0105.2
func TestCheckComparesWithTheLastRelease(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if output, err := git(root, append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...); err != nil {
			t.Fatal(output, err)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checked := func(want string, lines ...string) {
		t.Helper()
		var out strings.Builder
		if err := check(root, lines, &out); err != nil {
			out.WriteString(err.Error())
		}
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	const f, g = "pkg p, func F()", "pkg p, func G()"
	run("init", "-q")
	write("CHANGELOG.md", "# Changelog\n")
	run("add", ".")
	run("commit", "-qm", "before the page")
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	checked("-update writes it", f, g)
	write(page, f+"\n"+g+"\n")
	checked("is stale", f)
	checked("nothing was compared", f, g)
	run("update-ref", "refs/remotes/origin/main", "HEAD")
	checked("has no docs/api.txt", f, g)
	run("add", ".")
	run("commit", "-qm", "the page")
	run("update-ref", "refs/remotes/origin/main", "HEAD")
	write(page, g+"\n")
	checked(f, g)
	write("CHANGELOG.md", "# Changelog\n## [Unreleased]\n### Changed\n- F is gone.\n")
	checked("", g)

	write("CHANGELOG.md", "# Changelog\n## [Unreleased]\n## [0.1.0] - 2026-12-01\n### Changed\n- F is gone.\n")
	write(page, f+"\n"+g+"\n")
	run("add", ".")
	run("commit", "-qm", "release")
	run("tag", "v0.1.0")
	run("update-ref", "refs/remotes/origin/main", "HEAD")
	checked("", f, g)
	write(page, g+"\n")
	run("add", ".")
	run("commit", "-qm", "on main since")
	run("update-ref", "refs/remotes/origin/main", "HEAD")
	checked(f, g)
}
