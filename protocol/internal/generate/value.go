package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// This file has the statements that read, write and measure one value, by its kind.

// read returns the statements that read a value into a variable.
func (c *codec) read(into string, t ast.Expr, member, most string) string {
	name := types.ExprString(t)
	_, wire, _ := strings.Cut(member, ".")
	switch kind := c.kind(t); kind {
	case "string":
		if words[wire] {
			return into + " = readWord(text)"
		}
		return into + " = text.String()"
	case "word":
		return fmt.Sprintf("%s = %s(readWord(text))", into, name)
	case "bool":
		return into + " = text.Bool()"
	case "raw":
		if shared[member] {
			return into + " = readShared(text)"
		}
		return into + " = readRaw(text)"
	case "integer", "float", "meta", "strings", "identifier":
		return fmt.Sprintf("%s = read%s(text)", into, strings.ToUpper(kind[:1])+kind[1:])
	case "texts":
		return fmt.Sprintf("%s = readTexts[%s](text, %s)", into, name[2:], cmp.Or(most, "unbounded"))
	case "pointer":
		element := t.(*ast.StarExpr).X
		return fmt.Sprintf("%s = new(%s)\n%s", into, types.ExprString(element), c.read("*"+into, element, member, ""))
	case "list":
		return fmt.Sprintf("%s = decode%s(text, %s)", into, c.list(t), cmp.Or(most, "unbounded"))
	case "blocks":
		return fmt.Sprintf("%s = decode%s(text)", into, name)
	case "struct":
		c.need(name)
		if at, ok := strings.CutPrefix(into, "*"); ok {
			return fmt.Sprintf("decode%s(text, %s)", name, at)
		}
		return fmt.Sprintf("%s = %s{}\ndecode%s(text, &%s)", into, name, name, into)
	default:
		c.left = append(c.left, member+": "+name)
		return fmt.Sprintf("%s = readPlain[%s](text)", into, name)
	}
}

// write returns the statements that append a value.
func (c *codec) write(value string, t ast.Expr) string {
	const sure = "if dst, ok = %s(dst, %s); !ok {\nreturn nil, false\n}"
	name := types.ExprString(t)
	switch kind := c.kind(t); kind {
	case "string":
		return fmt.Sprintf("dst = appendString(dst, %s)", value)
	case "word":
		return fmt.Sprintf("dst = appendString(dst, string(%s))", value)
	case "bool":
		return fmt.Sprintf("dst = strconv.AppendBool(dst, %s)", value)
	case "integer":
		return fmt.Sprintf("dst = strconv.AppendInt(dst, %s, 10)", value)
	case "texts":
		return fmt.Sprintf("dst = appendTexts(dst, %s)", value)
	case "raw", "float", "meta", "strings", "identifier":
		return fmt.Sprintf(sure, "append"+strings.ToUpper(kind[:1])+kind[1:], value)
	case "pointer":
		return c.write("*"+value, t.(*ast.StarExpr).X)
	case "list":
		return fmt.Sprintf(sure, "append"+c.list(t), value)
	case "blocks":
		return fmt.Sprintf(sure, "append"+name, value)
	case "struct":
		return fmt.Sprintf(sure, "append"+name, address(value))
	default:
		return fmt.Sprintf(sure, "appendPlain", address(value))
	}
}

// size returns how many bytes a value takes, about. Too few cost a second allocation, too many
// only memory.
func (c *codec) size(value string, t ast.Expr) string {
	switch kind := c.kind(t); kind {
	case "string", "word":
		return fmt.Sprintf("len(%s)+len(%s)/8+2", value, value)
	case "raw":
		return fmt.Sprintf("len(%s)", value)
	case "meta", "strings", "texts":
		return fmt.Sprintf("size%s(%s)", strings.ToUpper(kind[:1])+kind[1:], value)
	case "pointer":
		return c.size("*"+value, t.(*ast.StarExpr).X)
	case "list":
		return fmt.Sprintf("size%s(%s)", c.list(t), value)
	case "blocks":
		return fmt.Sprintf("size%s(%s)", types.ExprString(t), value)
	case "struct":
		return fmt.Sprintf("size%s(%s)", types.ExprString(t), address(value))
	case "plain":
		if types.ExprString(t) == "[]byte" {
			return fmt.Sprintf("2+(len(%s)+2)/3*4", value)
		}
		return "64"
	default:
		return "8"
	}
}

// address returns a pointer to a variable.
func address(value string) string {
	if at, ok := strings.CutPrefix(value, "*"); ok {
		return at
	}
	return "&" + value
}

// present returns the condition under which a member that may be omitted is not.
func (c *codec) present(value string, t ast.Expr) string {
	switch c.kind(t) {
	case "string", "word":
		return value + ` != ""`
	case "bool":
		return value
	case "integer":
		return value + " != 0"
	case "float":
		return fmt.Sprintf("!isZeroFloat(%s)", value)
	case "identifier":
		return fmt.Sprintf("!%s.IsZero()", value)
	case "struct":
		return fmt.Sprintf("%s != (%s{})", value, types.ExprString(t))
	default:
		return value + " != nil"
	}
}
