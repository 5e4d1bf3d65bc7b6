// Package paramheader reads which arguments of a tool are mirrored: clients of 2026-07-28 also
// send them in headers of the HTTP request, so that proxies can route by them without
// reading the body (basic/transports/streamable-http).
package paramheader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json/jsontext"
)

// Keyword is the member of a property's schema that names the header: Mcp-Param- followed
// by this name.
const Keyword = "x-mcp-header"

// These limit a tool, for servers and clients alike.
const (
	maxArguments  = 100 // that are mirrored
	maxHeaderName = 128 // bytes
)

// An Argument is an argument that is mirrored.
type Argument struct {
	Path   []string // of the argument, through objects
	Header string   // its name, after Mcp-Param-
}

// Arguments returns the arguments that an input schema marks as mirrored. It fails if an
// annotation is invalid, or if the schema cannot be read. An annotation is valid on a
// string, an integer or a boolean that is reached from the root through properties alone.
// No two may name the same header.
func Arguments(schema json.RawMessage) ([]Argument, error) {
	if !bytes.Contains(schema, []byte(Keyword)) {
		return nil, nil
	}
	w := walk{tokens: tokensOf(schema)}
	err := w.schema(nil)
	return w.found, err
}

// A walk reads a schema once, from its beginning to its end. A server chooses the schemas
// of its tools, so the work must not grow with their depth.
type walk struct {
	tokens *jsontext.Decoder
	found  []Argument
}

func tokensOf(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
}

// schema reads the schema of the argument at a path.
func (w *walk) schema(path []string) error {
	var annotation, typ json.RawMessage
	err := w.members(func(keyword string) error {
		if keyword == "properties" {
			return w.members(func(name string) error { return w.schema(append(path, name)) })
		}
		value, err := w.tokens.ReadValue()
		switch {
		case err != nil:
			return err
		case keyword == Keyword:
			annotation = bytes.Clone(value)
		case annotates(value):
			return fmt.Errorf("%s within %q", Keyword, keyword)
		case keyword == "type":
			typ = bytes.Clone(value)
		}
		return nil
	})
	if err != nil || annotation == nil {
		return err
	}
	return w.add(path, annotation, typ)
}

// add records the argument at a path. It is called when the whole schema of the argument was read:
// the type may come after the annotation. Two arguments must not have one header, whose names
// ignore case; a receiver could not tell them apart.
func (w *walk) add(path []string, annotation, typ json.RawMessage) error {
	name, err := readAnnotation(annotation, typ)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(w.found, func(a Argument) bool { return strings.EqualFold(a.Header, name) }):
		return fmt.Errorf("%s %q is there twice", Keyword, name)
	case len(w.found) == maxArguments:
		return &protocol.LimitError{What: "mirrored arguments of a tool", Limit: maxArguments}
	}
	w.found = append(w.found, Argument{Path: slices.Clone(path), Header: name}) // the path is used again for the next member
	return nil
}

// members calls read for each member of the next value. Read must read the value of the
// member. A value that is not an object, such as a boolean schema, has no members.
func (w *walk) members(read func(name string) error) error {
	if w.tokens.PeekKind() != '{' {
		return w.tokens.SkipValue()
	}
	if _, err := w.tokens.ReadToken(); err != nil {
		return err
	}
	for w.tokens.PeekKind() != '}' {
		name, err := w.tokens.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := w.tokens.ReadToken()
	return err
}

// annotates reports whether an annotation is anywhere in a value of a schema.
func annotates(value []byte) bool {
	if !bytes.Contains(value, []byte(Keyword)) {
		return false
	}
	for tokens := tokensOf(value); ; {
		within, read := tokens.StackIndex(tokens.StackDepth())
		token, err := tokens.ReadToken()
		if err != nil {
			return false // the end of the value
		}
		if isName := within == '{' && read%2 == 0 && token.Kind() == '"'; isName && token.String() == Keyword {
			return true
		}
	}
}

// readAnnotation returns the name in an annotation, if the type of the property permits
// one.
func readAnnotation(annotation, typ json.RawMessage) (string, error) {
	var name, of string
	if protocol.Unmarshal(annotation, &name) != nil || name == "" || len(name) > maxHeaderName {
		return "", fmt.Errorf("%s is %.100s, not a name of 1 to %d bytes", Keyword, annotation, maxHeaderName)
	}
	if !header.IsName(name) {
		return "", fmt.Errorf("%s %q is not the name of a header", Keyword, name)
	}
	if protocol.Unmarshal(typ, &of) != nil || of != "string" && of != "integer" && of != "boolean" {
		return "", fmt.Errorf("%s %q is on the type %.100s, not on a string, an integer or a boolean", Keyword, name, typ)
	}
	return name, nil
}

// In returns the argument in the arguments of a call, or nil if it is absent.
func (a Argument) In(arguments json.RawMessage) json.RawMessage {
	for _, name := range a.Path {
		var members map[string]json.RawMessage
		if jsontext.Value(arguments).Kind() != '{' || protocol.Unmarshal(arguments, &members) != nil {
			return nil
		}
		arguments = members[name]
	}
	return arguments
}

// Texts returns what to mirror of the arguments of one call: their texts, by the names of
// the headers. Absent and null arguments are not mirrored.
func Texts(all []Argument, arguments json.RawMessage) map[string]string {
	texts := make(map[string]string)
	for _, a := range all {
		if text, ok := textOf(a.In(arguments)); ok {
			texts[a.Header] = text
		}
	}
	return texts
}

// textOf returns the text of a value, if the value can be mirrored.
func textOf(value json.RawMessage) (string, bool) {
	switch value = bytes.TrimSpace(value); jsontext.Value(value).Kind() {
	case '"':
		var text string
		err := protocol.Unmarshal(value, &text)
		return text, err == nil
	case 't', 'f':
		return string(value), true
	case '0':
		return integerOf(value)
	default:
		return "", false
	}
}

// integerOf writes a whole number in the one way that both sides compare: 1e3 and 1000.0 are 1000.
// Others are not mirrored, as every reader would round them in its own way. A long text is refused
// before it is read, because its exponent might be huge.
func integerOf(value json.RawMessage) (string, bool) {
	if len(value) > 40 {
		return "", false
	}
	number, ok := new(big.Rat).SetString(string(value))
	if !ok || !number.IsInt() || number.Num().BitLen() > 53 {
		return "", false
	}
	return number.Num().String(), true
}
