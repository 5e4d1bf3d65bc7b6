package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// This file has the functions of one struct, and of the lists of one type.

// object writes the functions of a struct.
func (c *codec) object(name string) {
	all := c.members(name)
	c.decoder(name, all)
	c.encoder(name, all)
	c.sizer(name, all)
}

// decoder writes a decoder that ignores unknown members, as reflection does, or keeps them.
func (c *codec) decoder(name string, all members) {
	c.p("\nfunc decode%s(text *scan.Text, to *%s) {\nfor name := range text.Members {\nswitch string(name) {", name, name)
	for _, f := range all.fields {
		c.p("case %q:\n%s", f.wire, c.read("to."+f.name, f.kind, name+"."+f.wire, f.most))
	}
	for _, wire := range all.inlined {
		c.p("case %q:\ntext.Fail()", wire)
	}
	if all.others {
		c.p("default:\nto.Others = readOther(text, to.Others, name)\n}\n}")
	} else {
		c.p("default:\ntext.Value()\n}\n}")
	}
	if guard := checked[name]; strings.HasPrefix(guard, "(") {
		c.p("if to.check() != nil {\ntext.Fail()\n}")
	}
	c.p("}")
}

func (c *codec) encoder(name string, all members) {
	c.p("\nfunc append%s(dst []byte, from *%s) (_ []byte, ok bool) {\nif %s {\nreturn nil, false\n}\ndst = append(dst, '{')", name, name, unusual(name, all))
	for _, f := range all.fields {
		value := "from." + f.name
		write := fmt.Sprintf("dst = append(dst, `%q:`...)\n%s\ndst = append(dst, ',')", f.wire, c.write(value, f.kind))
		switch {
		case f.omit:
			c.p("if %s {\n%s\n}", c.present(value, f.kind), write)
		case c.kind(f.kind) == "pointer":
			c.p("if %s == nil {\ndst = append(dst, `%q:null,`...)\n} else {\n%s\n}", value, f.wire, write)
		default:
			c.p("%s", write)
		}
	}
	c.p("return closed(dst), true\n}")
}

func (c *codec) sizer(name string, all members) {
	var optional strings.Builder
	always := []string{"2"}
	for _, f := range all.fields {
		value := "from." + f.name
		measured := c.size(value, f.kind)
		switch {
		case f.omit:
			fmt.Fprintf(&optional, "if %s {\nn += %d+%s\n}\n", c.present(value, f.kind), len(f.wire)+4, measured)
		case c.kind(f.kind) == "pointer":
			always = append(always, fmt.Sprint(len(f.wire)+12))
		default:
			always = append(always, fmt.Sprintf("%d+%s", len(f.wire)+4, measured))
		}
	}
	c.p("\nfunc size%s(from *%s) int {\nif from == nil {\nreturn 4\n}", name, name)
	c.p("n := %s\n%sreturn n\n}", strings.Join(always, " + "), optional.String())
}

// unusual returns when a struct is left to reflection.
func unusual(name string, all members) string {
	when := []string{"from == nil"}
	for _, pointer := range all.pointers {
		when = append(when, fmt.Sprintf("from.%s != nil", pointer))
	}
	if guard := checked[name]; guard != "" {
		when = append(when, guard)
	}
	if all.others {
		when = append(when, "len(from.Others) > 0")
	}
	return strings.Join(when, " || ")
}

// listFunctions writes the functions of a list. The decoder gets the limit of the field as most.
func (c *codec) listFunctions(name string, list *ast.ArrayType) {
	element, kind := nameOf(list), types.ExprString(list)
	_, pointers := list.Elt.(*ast.StarExpr)
	c.p("\nfunc decode%s(text *scan.Text, most int) %s {\nall := %s{}", name, kind, kind)
	if pointers {
		c.p("var room []%s", element)
	}
	c.p("for range text.Elements {\nif len(all) == most {\ntext.Fail()\n}")
	if pointers {
		c.p("if len(room) == 0 {\nroom = make([]%s, roomAfter(len(all)))\n}", element)
		c.p("decode%s(text, &room[0])\nall, room = append(all, &room[0]), room[1:]", element)
	} else {
		c.p("all = append(all, %s{})\ndecode%s(text, &all[len(all)-1])", element, element)
	}
	c.p("}\nreturn all\n}\n\nfunc append%s(dst []byte, from %s) (_ []byte, ok bool) {\ndst = append(dst, '[')\nfor i := range from {", name, kind)
	at := "&from[i]"
	if pointers {
		at = "from[i]"
		c.p("before := dst\nif dst, ok = append%s(dst, %s); !ok {\nif dst, ok = appendPlain(before, %s); !ok {\nreturn nil, false\n}\n}", element, at, at)
	} else {
		c.p("if dst, ok = append%s(dst, %s); !ok {\nreturn nil, false\n}", element, at)
	}
	c.p("dst = append(dst, ',')\n}\nreturn closedList(dst), true\n}")
	c.p("\nfunc size%s(from %s) int {\nn := 2\nfor i := range from {\nn += 1+size%s(%s)\n}\nreturn n\n}", name, kind, element, at)
}
