package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// A schema is a tool's input schema, as far as it can be read here: the server
// is the judge of the rest.
type schema struct {
	root      object
	validator *jsonschema.Validator // nil: not checked here
}

type object = map[string]any

func readSchema(raw json.RawMessage) schema {
	var root object
	if protocol.Unmarshal(raw, &root) != nil {
		return schema{}
	}
	validator, err := jsonschema.Compile(raw)
	if err != nil {
		validator = nil // the server is the judge
	}
	return schema{root: root, validator: validator}
}

// validate says what is wrong with arguments, as far as that can be told here.
func (s schema) validate(ctx context.Context, arguments json.RawMessage) error {
	if s.validator == nil {
		return nil
	}
	return s.validator.Validate(ctx, arguments)
}

// properties are the members that the schema names.
func (s schema) properties() object {
	properties, _ := s.root["properties"].(object)
	return properties
}

// types are the JSON types that a property may have; none if the schema does
// not say.
func (s schema) types(property string) []string {
	types := s.typesOf(s.properties()[property], make(map[string]bool))
	slices.Sort(types)
	return slices.Compact(types)
}

// typesOf follows each reference once: once is enough, and more may never end.
func (s schema) typesOf(value any, followed map[string]bool) []string {
	sub, _ := value.(object)
	if types := named(sub["type"]); len(types) > 0 {
		return types
	}
	if ref, ok := sub["$ref"].(string); ok && !followed[ref] {
		followed[ref] = true
		target, _ := jsonschema.Resolve(s.root, ref)
		return s.typesOf(target, followed)
	}
	var types []string
	for _, keyword := range []string{"anyOf", "oneOf"} {
		alternatives, _ := sub[keyword].([]any)
		for _, alternative := range alternatives {
			types = append(types, s.typesOf(alternative, followed)...)
		}
	}
	return types
}

// named reads the keyword type: one name, or several.
func named(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		var types []string
		for _, name := range v {
			if name, ok := name.(string); ok {
				types = append(types, name)
			}
		}
		return types
	default:
		return nil
	}
}

// synopsis says how the tool is called: its keys with their types, optional
// ones in brackets.
func (s schema) synopsis(tool string) string {
	required, _ := s.root["required"].([]any)
	words := []string{"It takes: bowline call " + line(tool)}
	for _, key := range slices.Sorted(maps.Keys(s.properties())) {
		kind := cmp.Or(strings.ToUpper(strings.Join(s.types(key), "|")), "VALUE")
		word := fmt.Sprintf("%s=%s", line(key), line(kind))
		if !slices.Contains(required, any(key)) {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
