package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"
)

// A source is what the generated files are made from: the declarations of package protocol.
type source struct {
	types   map[string]ast.Expr
	methods map[string]map[string]bool // by type: those written by hand
}

// load reads the declarations of the package in a folder.
func load(dir string) (*source, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	s := &source{map[string]ast.Expr{}, map[string]map[string]bool{}}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "zz_") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declared := range file.Decls {
			s.declare(declared)
		}
	}
	return s, nil
}

func (s *source) declare(declared ast.Decl) {
	switch d := declared.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return
		}
		of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
		if s.methods[of] == nil {
			s.methods[of] = make(map[string]bool)
		}
		s.methods[of][d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok {
				s.types[spec.Name.Name] = spec.Type
			}
		}
	}
}

// decodesItself reports whether a type has a decoder by hand.
func (s *source) decodesItself(name string) bool {
	return s.methods[name]["UnmarshalJSON"] || s.methods[name]["UnmarshalJSONFrom"]
}

// A field is a member of a struct, or of one that it embeds.
type field struct {
	name, wire string
	kind       ast.Expr
	omit       bool
	most, what string // of a list: how many elements it may have when it is decoded, and what they are
}

// members are what a struct consists of on the wire.
type members struct {
	fields   []field
	inlined  []string // what else belongs to pointers that are inlined: left to reflection
	pointers []string // these pointers
	others   bool     // unknown members are kept
}

// members returns the members of a struct, in the order in which reflection writes them, which
// is that of the fields. Those of an embedded struct come in its place. What an inlined pointer
// has is refused, because the message then is of another shape.
func (s *source) members(name string) (all members) {
	for _, f := range s.types[name].(*ast.StructType).Fields.List {
		var tag reflect.StructTag
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		}
		wire, options, _ := strings.Cut(tag.Get("json"), ",")
		kind := types.ExprString(f.Type)
		switch {
		case wire == "-":
		case options == "unknown":
			all.others = true
		case options == "inline":
			for _, f := range s.members(strings.TrimPrefix(kind, "*")).fields {
				all.inlined = append(all.inlined, f.wire)
			}
			all.pointers = append(all.pointers, f.Names[0].Name)
		case len(f.Names) == 0:
			if _, ok := s.types[kind].(*ast.StructType); ok {
				all.fields = append(all.fields, s.members(kind).fields...)
			}
		default:
			most, what, _ := strings.Cut(tag.Get("most"), " ")
			all.fields = append(all.fields, field{f.Names[0].Name, wire, f.Type, options == "omitzero", most, what})
		}
	}
	return all
}

// bounds returns the limits of a struct's lists, as the arguments of boundedFrom.
func (m members) bounds() (all []string) {
	for _, f := range m.fields {
		if f.most == "" {
			continue
		}
		_, whole := f.kind.(*ast.ArrayType).Elt.(*ast.StarExpr)
		all = append(all, fmt.Sprintf("bound{%q, %s, %q, %t}", f.wire, f.most, f.what, whole))
	}
	return all
}

// lowered returns a name that is not exported.
func lowered(name string) string {
	first := 1
	for first+1 < len(name) && unicode.IsUpper(rune(name[first])) && unicode.IsUpper(rune(name[first+1])) {
		first++
	}
	return strings.ToLower(name[:first]) + name[first:]
}
