package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A mirrored argument of a tool is also sent in a header, so that proxies can route by
// it without reading the body (2026-07-28 basic/transports/streamable-http). In the
// tool's input schema, x-mcp-header on a property marks it.
type mirrored struct {
	path []string // of the argument, through objects
	name string   // of the header, after Mcp-Param-
}

const (
	headerKeyword = "x-mcp-header"
	maxMirrored   = 100 // arguments of one tool
	maxHeaderName = 128 // bytes
)

// mirrors reports whether a transport mirrors arguments.
func mirrors(t transport.Transport) bool {
	mirror, ok := t.(transport.ArgumentMirror)
	return ok && mirror.MirrorsArguments()
}

// mirroredIn returns the arguments that an input schema marks as mirrored. It fails if
// an annotation is invalid; the client does not offer such a tool.
func mirroredIn(schema json.RawMessage) ([]mirrored, error) {
	if !bytes.Contains(schema, []byte(headerKeyword)) {
		return nil, nil
	}
	var all []mirrored
	err := collectMirrored(schema, nil, &all)
	return all, err
}

// collectMirrored collects the annotations of an object schema's properties. Annotations
// in other places are invalid.
func collectMirrored(schema json.RawMessage, path []string, all *[]mirrored) error {
	var node map[string]json.RawMessage
	if protocol.Unmarshal(schema, &node) != nil {
		return nil // a boolean schema
	}
	for keyword, value := range node {
		if keyword != "properties" && keyword != headerKeyword && annotates(value) {
			return fmt.Errorf("%s within %q", headerKeyword, keyword)
		}
	}
	if annotation, ok := node[headerKeyword]; ok {
		header, err := readAnnotation(annotation, node["type"])
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*all, func(m mirrored) bool { return strings.EqualFold(m.name, header) }) {
			return fmt.Errorf("%s %q is there twice", headerKeyword, header)
		}
		if len(*all) == maxMirrored {
			return &protocol.LimitError{What: "mirrored arguments of a tool", Limit: maxMirrored}
		}
		*all = append(*all, mirrored{path: slices.Clone(path), name: header})
	}
	var properties map[string]json.RawMessage
	if protocol.Unmarshal(node["properties"], &properties) != nil {
		return nil
	}
	for name, property := range properties {
		if err := collectMirrored(property, append(path, name), all); err != nil {
			return err
		}
	}
	return nil
}

// annotates reports whether the annotation is anywhere in a schema.
func annotates(schema json.RawMessage) bool {
	if !bytes.Contains(schema, []byte(headerKeyword)) {
		return false
	}
	var node map[string]json.RawMessage
	if protocol.Unmarshal(schema, &node) == nil {
		for keyword, value := range node {
			if keyword == headerKeyword || annotates(value) {
				return true
			}
		}
		return false
	}
	var list []json.RawMessage
	return protocol.Unmarshal(schema, &list) == nil && slices.ContainsFunc(list, annotates)
}

// readAnnotation returns the header name in an annotation. The name is a token (RFC
// 9110), and the property a string, an integer or a boolean.
func readAnnotation(annotation, typ json.RawMessage) (string, error) {
	var header, of string
	if protocol.Unmarshal(annotation, &header) != nil || header == "" || len(header) > maxHeaderName {
		return "", fmt.Errorf("%s is %.100s, not a short name", headerKeyword, annotation)
	}
	for _, c := range header {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "", fmt.Errorf("%s %q is not the name of a header", headerKeyword, header)
		}
	}
	if protocol.Unmarshal(typ, &of) != nil || of != "string" && of != "integer" && of != "boolean" {
		return "", fmt.Errorf("%s %q on type %.100s", headerKeyword, header, typ)
	}
	return header, nil
}

// values returns the arguments of one call to mirror, by the names of their headers.
// Absent and null arguments are not mirrored.
func values(all []mirrored, arguments json.RawMessage) transport.Arguments {
	found := transport.Arguments{}
	for _, m := range all {
		value := arguments
		for _, name := range m.path {
			var object map[string]json.RawMessage
			if !isObject(value) || protocol.Unmarshal(value, &object) != nil {
				value = nil
				break
			}
			value = object[name]
		}
		if text, ok := mirror(value); ok {
			found[m.name] = text
		}
	}
	return found
}

// mirror encodes a value for a header.
func mirror(value json.RawMessage) (string, bool) {
	switch value = bytes.TrimSpace(value); {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		var text string
		err := protocol.Unmarshal(value, &text)
		return text, err == nil
	case value[0] == 't', value[0] == 'f':
		return string(value), true
	case value[0] == '-' || '0' <= value[0] && value[0] <= '9':
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
