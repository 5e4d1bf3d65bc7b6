package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// list returns a line for each exported constant, variable, function, type, field and method, in order. A parameter has no name in
// them, because nobody who calls a function depends on it.
func list(packages []*types.Package) (lines []string) {
	for _, p := range packages {
		l := lister{of: p}
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				l.object(o)
			}
		}
		lines = append(lines, l.lines...)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// lister lists one package.
type lister struct {
	of    *types.Package
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, "pkg "+folder(l.of.Path())+", "+fmt.Sprintf(format, args...))
}

func (l *lister) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		l.add("const %s %s = %s", o.Name(), l.text(o.Type()), o.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", o.Name(), l.text(o.Type()))
	case *types.Func:
		l.add("func %s%s", o.Name(), l.signature(o.Signature()))
	case *types.TypeName:
		l.typeName(o)
	}
}

// typeName lists a type. People who cannot import what an alias stands for see its fields and methods by the alias.
func (l *lister) typeName(o *types.TypeName) {
	if !o.IsAlias() {
		l.members(o.Name(), l.typeParameters(o.Type().(*types.Named).TypeParams()), o.Type())
		return
	}
	of := types.Unalias(o.Type())
	l.add("type %s = %s", o.Name(), l.text(of))
	if named, ok := of.(*types.Named); ok && named.Obj().Pkg() != nil && internal(named.Obj().Pkg().Path()) {
		l.members(o.Name(), "", of)
	}
}

// members lists what a type is, and its fields and methods, those of embedded types as well.
func (l *lister) members(name, parameters string, t types.Type) {
	switch u := t.Underlying().(type) {
	case *types.Interface:
		l.interfaceMethods(name, parameters, u)
		return
	case *types.Struct:
		l.add("type %s%s struct", name, parameters)
		l.fields(name, u)
	default:
		l.add("type %s%s %s", name, parameters, l.text(u))
	}
	values := types.NewMethodSet(t)
	for method := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if !method.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if values.Lookup(nil, method.Obj().Name()) != nil {
			receiver = name
		}
		l.add("method (%s) %s%s", receiver, method.Obj().Name(), l.signature(method.Type().(*types.Signature)))
	}
}

// interfaceMethods lists an interface. Its first line has all methods, so that it changes with each new one: who implements the interface
// lacks it. If a method is unexported, others cannot implement the interface, and new methods break nobody.
func (l *lister) interfaceMethods(name, parameters string, of *types.Interface) {
	if !of.IsMethodSet() {
		l.add("type %s%s %s", name, parameters, l.text(of))
		return
	}
	var all []string
	for method := range of.Methods() {
		if method.Exported() {
			all = append(all, method.Name())
			l.add("type %s interface, %s%s", name, method.Name(), l.signature(method.Signature()))
		}
	}
	if len(all) < of.NumMethods() {
		all = []string{"unexported methods"}
	}
	l.add("type %s%s interface { %s }", name, parameters, strings.Join(all, ", "))
}

// fields lists the fields of a struct, and those of an embedded one that people cannot name.
func (l *lister) fields(name string, of *types.Struct) {
	for field := range of.Fields() {
		embedded, isStruct := field.Type().Underlying().(*types.Struct)
		switch {
		case field.Embedded() && isStruct && !l.hasName(field.Type()):
			l.fields(name, embedded)
		case !field.Exported():
		case field.Embedded():
			l.add("type %s struct, embeds %s", name, l.text(field.Type()))
		default:
			l.add("type %s struct, %s %s", name, field.Name(), l.text(field.Type()))
		}
	}
}

// hasName reports whether people can write the name of a type.
func (l *lister) hasName(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Exported() && (named.Obj().Pkg() == nil || !internal(named.Obj().Pkg().Path()))
}

// signature is a function's type without the word func and without names.
func (l *lister) signature(of *types.Signature) string {
	var parameters []string
	for i := range of.Params().Len() {
		text := l.text(of.Params().At(i).Type())
		if of.Variadic() && i == of.Params().Len()-1 {
			text = "..." + strings.TrimPrefix(text, "[]")
		}
		parameters = append(parameters, text)
	}
	text := l.typeParameters(of.TypeParams()) + "(" + strings.Join(parameters, ", ") + ")"
	var results []string
	for result := range of.Results().Variables() {
		results = append(results, l.text(result.Type()))
	}
	switch len(results) {
	case 0:
		return text
	case 1:
		return text + " " + results[0]
	default:
		return text + " (" + strings.Join(results, ", ") + ")"
	}
}

func (l *lister) typeParameters(of *types.TypeParamList) string {
	var all []string
	for parameter := range of.TypeParams() {
		all = append(all, parameter.Obj().Name()+" "+l.text(parameter.Constraint()))
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// text writes a type. Functions in it have no names of parameters either.
func (l *lister) text(t types.Type) string {
	switch t := t.(type) {
	case *types.Signature:
		return "func" + l.signature(t)
	case *types.Pointer:
		return "*" + l.text(t.Elem())
	case *types.Slice:
		return "[]" + l.text(t.Elem())
	case *types.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), l.text(t.Elem()))
	case *types.Map:
		return "map[" + l.text(t.Key()) + "]" + l.text(t.Elem())
	default:
		return types.TypeString(t, func(p *types.Package) string {
			if p == l.of {
				return ""
			}
			return folder(p.Path())
		})
	}
}
