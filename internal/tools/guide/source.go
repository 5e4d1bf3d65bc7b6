package guide

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A source is a parsed package.
type source struct {
	structs map[string]*ast.StructType
	consts  map[string]ast.Expr
	presets map[string]constant.Value // by type and field: what the code sets a zero field to
}

func parsePackage(dir string) (*source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	p := &source{make(map[string]*ast.StructType), make(map[string]ast.Expr), make(map[string]constant.Value)}
	var functions []*ast.FuncDecl
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				functions = append(functions, d)
			case *ast.GenDecl:
				p.declare(d)
			}
		}
	}
	for range 2 { // a default may be a part of another
		for _, f := range functions {
			p.readPresets(f)
		}
	}
	return p, nil
}

func (p *source) declare(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if s, ok := spec.Type.(*ast.StructType); ok {
				p.structs[spec.Name.Name] = s
			}
		case *ast.ValueSpec:
			for i, name := range spec.Names {
				if d.Tok == token.CONST && i < len(spec.Values) {
					p.consts[name.Name] = spec.Values[i]
				}
			}
		}
	}
}

// readPresets finds what a function sets a field to whose value is zero: as
// cmp.Or(max(o.Field, 0), value) or positive(o.Field, value). The parameter or receiver
// o tells the type.
func (p *source) readPresets(f *ast.FuncDecl) {
	types := make(map[string]string)
	fields := f.Type.Params.List
	if f.Recv != nil {
		fields = append(fields[:len(fields):len(fields)], f.Recv.List...)
	}
	for _, parameter := range fields {
		kind := parameter.Type
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		if name, ok := kind.(*ast.Ident); ok {
			for _, variable := range parameter.Names {
				types[variable.Name] = name.Name
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if called := fmt.Sprint(call.Fun); called != "&{cmp Or}" && called != "positive" {
			return true
		}
		of := call.Args[0]
		if bounded, ok := of.(*ast.CallExpr); ok && len(bounded.Args) == 2 && fmt.Sprint(bounded.Fun) == "max" {
			of = bounded.Args[0]
		}
		field, ok := of.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if value := p.eval(call.Args[1]); value != nil {
			p.presets[types[fmt.Sprint(field.X)]+"."+field.Sel.Name] = value
		}
		return true
	})
}

// units are the constants of package time, in nanoseconds.
var units = map[string]int64{"Nanosecond": 1, "Microsecond": 1e3, "Millisecond": 1e6, "Second": 1e9, "Minute": 60e9, "Hour": 3600e9}

// eval returns the value of a constant expression; nil if it is none.
func (p *source) eval(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return p.eval(e.X)
	case *ast.Ident:
		if of, found := p.consts[e.Name]; found {
			return p.eval(of)
		}
	case *ast.SelectorExpr:
		if unit, found := units[e.Sel.Name]; found && fmt.Sprint(e.X) == "time" {
			return constant.MakeInt64(unit)
		}
		if preset, found := p.presets[fmt.Sprint(e.X)+"."+e.Sel.Name]; found {
			return preset
		}
		for option, preset := range p.presets {
			if e.Sel.Name == "MaxMemory" && strings.HasSuffix(option, "."+e.Sel.Name) {
				return preset
			}
		}
	case *ast.BinaryExpr:
		x, y := p.eval(e.X), p.eval(e.Y)
		if x == nil || y == nil {
			return nil
		}
		if e.Op == token.SHL {
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(n))
		}
		if e.Op == token.QUO && x.Kind() == constant.Int && y.Kind() == constant.Int {
			return constant.BinaryOp(x, token.QUO_ASSIGN, y)
		}
		return constant.BinaryOp(x, e.Op, y)
	}
	return nil
}

// A field is one limit, or several that share a comment.
type field struct {
	names      string
	isDuration bool
	preset     string // as the comment states it
	what       string
}

// fields returns the numbers of a struct that have a comment.
func (p *source) fields(of string) (all []field) {
	s := p.structs[of]
	if s == nil {
		return nil
	}
	for _, f := range s.Fields.List {
		kind := fmt.Sprint(f.Type)
		switch kind {
		case "int", "int64", "float64", "&{time Duration}":
		default:
			continue
		}
		var names []string
		for _, name := range f.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		next := field{names: strings.Join(names, ", "), isDuration: kind == "&{time Duration}"}
		if text := f.Comment.Text(); text != "" {
			next.what, next.preset = splitLine(text)
		} else {
			next.what, next.preset = splitDoc(f.Doc.Text())
		}
		next.what = strings.TrimPrefix(strings.TrimPrefix(next.what, names[0]+" "), "is ")
		all = append(all, next)
	}
	return all
}

// splitLine splits a comment at the end of a line, such as "of a call; 10 minutes".
func splitLine(text string) (what, preset string) {
	text = oneLine(text)
	if what, preset, found := strings.Cut(text, "default"); found {
		return strings.TrimRight(what, "; "), strings.TrimLeft(preset, ": ")
	}
	for _, separator := range []string{"; ", ": "} {
		if at := strings.LastIndex(text, separator); at >= 0 {
			return text[:at], text[at+2:]
		}
	}
	return "–", text
}

var (
	statement = regexp.MustCompile(`(?:; default:?|\bDefaults?(?:, also [^:]*)?:?|\b(?:Zero|0)(?: or less)?:|\bzero means) (.+?)(?:\. |\.$|; (?:one|raise)|$)`)
	aside     = regexp.MustCompile(` \([^)]*\)`)
	negative  = regexp.MustCompile(`\bNegative: (.+?)(?:\. |\.$)`)
)

// splitDoc splits the comment above a field into its first sentence and its default.
func splitDoc(text string) (what, preset string) {
	text = oneLine(strings.Split(text, "\n\n")[0] + " " + lastParagraph(text))
	found := statement.FindStringSubmatch(text)
	if found == nil {
		return "", ""
	}
	preset = aside.ReplaceAllString(found[1], "")
	if negative := negative.FindStringSubmatch(text); negative != nil {
		preset += "; negative: " + negative[1]
	}
	what, _, _ = strings.Cut(text, ". ")
	what, _, _ = strings.Cut(what, "; default")
	return strings.TrimSuffix(strings.TrimSpace(what), "."), preset
}

func lastParagraph(text string) string {
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	if len(parts) == 1 {
		return ""
	}
	return parts[len(parts)-1]
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// states reports whether a text states a value, in one of the usual spellings.
func states(text string, value constant.Value, isDuration bool) bool {
	if value.Kind() != constant.Int {
		return strings.Contains(text, value.String())
	}
	number, _ := constant.Int64Val(value)
	spellings := []string{fmt.Sprint(number), grouped(number)}
	type unit struct {
		size  int64
		names []string
	}
	all := []unit{{1 << 10, []string{"KiB"}}, {1 << 20, []string{"MiB"}}}
	if isDuration {
		all = []unit{{1e6, []string{"ms"}}, {1e9, []string{"s", "second", "seconds"}}, {60e9, []string{"min", "minute", "minutes"}}, {3600e9, []string{"h", "hour", "hours"}}}
		spellings = nil
	}
	for _, u := range all {
		if number%u.size == 0 {
			for _, name := range u.names {
				spellings = append(spellings, fmt.Sprintf("%d %s", number/u.size, name))
				if number == u.size {
					spellings = append(spellings, "one "+name)
				}
			}
		}
	}
	for _, spelling := range spellings {
		if regexp.MustCompile(`\b` + regexp.QuoteMeta(spelling) + `\b`).MatchString(text) {
			return true
		}
	}
	return false
}

// grouped writes 16384 as 16,384.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
