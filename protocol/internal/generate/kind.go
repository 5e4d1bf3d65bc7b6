package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// This file says of which kind a type is, and with that, which functions it has.

// byHand are the types whose functions protocol/codec.go has: they are unions.
var byHand = map[string]string{"Contents": "blocks", "PromptMessage": "struct"}

// checked are the types with JSON methods of their own that add only this to their members:
// when not to encode them from their members.
var checked = map[string]string{
	"CallToolResult":   "from.Task != nil",
	"ResourceContents": "(from.Text == nil) == (from.Blob == nil)",
}

// shared are the members that may refer to the text of their message, see protocol.Unmarshal.
var shared = map[string]bool{"CallToolParams.arguments": true, "CallToolResult.structuredContent": true}

// words are the members whose value is most often one of protocol's words, so that it needs no memory.
var words = map[string]bool{"resultType": true, "cacheScope": true, "protocolVersion": true, "mode": true, "action": true, "mimeType": true}

// A codec is the text of the functions.
type codec struct {
	*source
	queue []string                  // the types that need functions, in order
	lists map[string]*ast.ArrayType // by what the names of their functions end with
	left  []string                  // the members left to reflection
	out   bytes.Buffer
}

func (c *codec) p(text string, values ...any) { fmt.Fprintf(&c.out, text+"\n", values...) }

// known reports whether the members of a type say how to decode it.
func (c *codec) known(name string) bool { return !c.decodesItself(name) || checked[name] != "" }

// byText are the kinds of types that look the same wherever they stand.
var byText = map[string]string{
	"string": "string", "bool": "bool", "int64": "integer", "float64": "float",
	"json.RawMessage": "raw", "stdjson.RawMessage": "raw",
	"Meta": "meta", "map[string]json.RawMessage": "meta", "map[string]stdjson.RawMessage": "meta",
	"map[string]string": "strings", "[]string": "texts", "[]Role": "texts", "jsonrpc.ID": "identifier",
}

// kind says how a type is read and written. Every type is at least plain: no type may be
// dropped because it is not known here.
func (c *codec) kind(t ast.Expr) string {
	if kind := byText[types.ExprString(t)]; kind != "" {
		return kind
	}
	switch t := t.(type) {
	case *ast.StarExpr:
		return "pointer"
	case *ast.Ident:
		return c.kindOfName(t.Name)
	case *ast.ArrayType:
		if c.kindOfName(nameOf(t)) == "struct" {
			return "list"
		}
	}
	return "plain"
}

func (c *codec) kindOfName(name string) string {
	if kind := byHand[name]; kind != "" {
		return kind
	}
	switch t := c.types[name].(type) {
	case *ast.StructType:
		if c.known(name) {
			return "struct"
		}
	case *ast.Ident:
		if t.Name == "string" {
			return "word"
		}
	}
	return "plain"
}

// nameOf returns the name of the elements of a list, which may be pointers.
func nameOf(list *ast.ArrayType) string { return strings.TrimPrefix(types.ExprString(list.Elt), "*") }

// need queues a type for functions of its own. A type may be queued while its own functions
// are written, so they may call themselves.
func (c *codec) need(name string) {
	if byHand[name] == "" && !slices.Contains(c.queue, name) {
		c.queue = append(c.queue, name)
	}
}

// list queues the functions of the lists of a type, and returns what their names end with.
func (c *codec) list(t ast.Expr) string {
	element := nameOf(t.(*ast.ArrayType))
	c.need(element)
	c.lists[element+"List"] = t.(*ast.ArrayType)
	return element + "List"
}
