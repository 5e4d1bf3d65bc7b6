package declaration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A method is named after its type, whether it has a pointer or type parameters.
func TestFunction(t *testing.T) {
	const text = `package p
func f() {}
func (T) a() {}
func (x *T) b() {}
func (*G[K]) c() {}
func (G[K, V]) d() {}
func (*(T)) e() {}
func () bad() {}
func (int, T) bad() {}
func ([]int) bad() {}
`
	syntax, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Log(err) // the last ones do not compile, and tools read them all the same
	}
	var got []string
	for _, decl := range syntax.Decls {
		got = append(got, Function(decl.(*ast.FuncDecl)))
	}
	if want := []string{"f", "T.a", "T.b", "G.c", "G.d", "T.e", "bad", "int.bad", "bad"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
