// Package mirror reads which arguments of a tool are mirrored: clients of 2026-07-28 also
// send them in headers of the HTTP request, so that proxies can route by them without
// reading the body (basic/transports/streamable-http).
package mirror

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
	MaxArguments  = 100 // that are mirrored
	MaxHeaderName = 128 // bytes
)

// An Argument is an argument that is mirrored.
type Argument struct {
	Path   []string // of the argument, through objects
	Header string   // its name, after Mcp-Param-
}

// Arguments returns the arguments that an input schema marks as mirrored. It fails if an
// annotation is invalid. An annotation is valid on a string, an integer or a boolean that
// is reached from the root through properties alone. No two may name the same header.
func Arguments(schema json.RawMessage) ([]Argument, error) {
	if !bytes.Contains(schema, []byte(Keyword)) {
		return nil, nil
	}
	var all []Argument
	err := collect(schema, nil, &all)
	return all, err
}

// collect collects the annotations of a schema and of its properties.
func collect(schema json.RawMessage, path []string, all *[]Argument) error {
	var node map[string]json.RawMessage
	if protocol.Unmarshal(schema, &node) != nil {
		return nil // a boolean schema
	}
	for keyword, value := range node {
		if keyword != "properties" && keyword != Keyword && annotates(value) {
			return fmt.Errorf("%s within %q", Keyword, keyword)
		}
	}
	if annotation, ok := node[Keyword]; ok {
		name, err := readAnnotation(annotation, node["type"])
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*all, func(a Argument) bool { return strings.EqualFold(a.Header, name) }) {
			return fmt.Errorf("%s %q is there twice", Keyword, name)
		}
		if len(*all) == MaxArguments {
			return &protocol.LimitError{What: "mirrored arguments of a tool", Limit: MaxArguments}
		}
		*all = append(*all, Argument{Path: slices.Clone(path), Header: name})
	}
	var properties map[string]json.RawMessage
	if protocol.Unmarshal(node["properties"], &properties) != nil {
		return nil
	}
	for name, property := range properties {
		if err := collect(property, append(path, name), all); err != nil {
			return err
		}
	}
	return nil
}

// annotates reports whether an annotation is anywhere in a value of a schema.
func annotates(value json.RawMessage) bool {
	if !bytes.Contains(value, []byte(Keyword)) {
		return false
	}
	var node map[string]json.RawMessage
	if protocol.Unmarshal(value, &node) == nil {
		for keyword, value := range node {
			if keyword == Keyword || annotates(value) {
				return true
			}
		}
		return false
	}
	var list []json.RawMessage
	return protocol.Unmarshal(value, &list) == nil && slices.ContainsFunc(list, annotates)
}

// readAnnotation returns the name in an annotation, if the type of the property permits
// one.
func readAnnotation(annotation, typ json.RawMessage) (string, error) {
	var name, of string
	if protocol.Unmarshal(annotation, &name) != nil || name == "" || len(name) > MaxHeaderName {
		return "", fmt.Errorf("%s is %.100s, not a name of 1 to %d bytes", Keyword, annotation, MaxHeaderName)
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
		if len(value) > 40 {
			return "", false // its exponent might be huge
		}
		number, ok := new(big.Rat).SetString(string(value))
		if !ok || !number.IsInt() || number.Num().BitLen() > 53 {
			return "", false
		}
		return number.Num().String(), true
	default:
		return "", false
	}
}
