package arguments

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// A Schema contains the parts of an input schema, of a tool or a question, that
// this command understands. The server checks the rest.
type Schema struct {
	root      Object
	Order     []string              // the names of the properties in their order
	validator *jsonschema.Validator // checks the arguments; nil: only the server checks them
	refused   error                 // why there is no validator
}

// An Object is a decoded object of JSON.
type Object = map[string]any

// ReadSchema reads a schema. Compile is that of package schema for tools, or for forms.
func ReadSchema(ctx context.Context, raw json.RawMessage, compile func(context.Context, json.RawMessage) (*jsonschema.Validator, error)) Schema {
	var s Schema
	s.validator, s.refused = compile(ctx, raw)
	var root Object
	if protocol.Unmarshal(raw, &root) == nil {
		s.root, s.Order = root, propertyOrder(raw)
	}
	return s
}

// Refused says why this command cannot check values against the schema; nil: it can.
func (s Schema) Refused() error { return s.refused }

// propertyOrder returns the names of the properties of a schema, in its order.
func propertyOrder(raw json.RawMessage) []string {
	var outer struct {
		Properties json.RawMessage `json:"properties"`
	}
	if protocol.Unmarshal(raw, &outer) != nil {
		return nil
	}
	var names []string
	decoder := json.NewDecoder(bytes.NewReader(outer.Properties))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil || decoder.Decode(new(json.RawMessage)) != nil {
			return nil
		}
		names = append(names, name.(string))
	}
	return names
}

// Validate reports what is wrong with arguments, as far as this command can check
// them.
func (s Schema) Validate(ctx context.Context, arguments json.RawMessage) error {
	if s.validator == nil {
		return nil
	}
	return s.validator.Validate(ctx, arguments)
}

// Properties returns the members that the schema names.
func (s Schema) Properties() Object {
	properties, _ := s.root["properties"].(Object)
	return properties
}

// Types returns the JSON types that a property may have, or none if the schema
// does not state them.
func (s Schema) Types(property string) []string {
	types := s.TypesOf(s.Properties()[property], make(map[string]bool))
	slices.Sort(types)
	return slices.Compact(types)
}

// TypesOf follows each reference only once, because references may form a cycle.
func (s Schema) TypesOf(value any, followed map[string]bool) []string {
	sub, _ := value.(Object)
	if types := named(sub["type"]); len(types) > 0 {
		return types
	}
	if ref, ok := sub["$ref"].(string); ok && !followed[ref] {
		followed[ref] = true
		target, _ := jsonschema.Resolve(s.root, ref)
		return s.TypesOf(target, followed)
	}
	var types []string
	for _, keyword := range []string{"anyOf", "oneOf"} {
		alternatives, _ := sub[keyword].([]any)
		for _, alternative := range alternatives {
			types = append(types, s.TypesOf(alternative, followed)...)
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

// Requires reports whether a property must be given.
func (s Schema) Requires(property string) bool {
	required, _ := s.root["required"].([]any)
	return slices.Contains(required, any(property))
}

// Keys returns the names of the arguments: the required ones, and then the others.
func (s Schema) Keys() []string {
	keys := slices.Clone(s.Order)
	slices.SortStableFunc(keys, func(a, b string) int {
		switch need := s.Requires(a); {
		case need == s.Requires(b):
			return 0
		case need:
			return -1
		default:
			return 1
		}
	})
	return keys
}

// Kinds returns the types of a property for people: null only if there is no other.
func (s Schema) Kinds(property string) []string {
	types := s.Types(property)
	if len(types) > 1 {
		types = slices.DeleteFunc(types, func(name string) bool { return name == "null" })
	}
	return types
}

// Options returns what an argument allows, if those are single values.
func (s Schema) Options(key string) []Option {
	raw, err := protocol.Marshal(s.Properties()[key])
	if err != nil {
		return nil
	}
	return ReadOptions(raw)
}

// About describes an argument: what the schema says of it, what it allows, its limits, and its default.
func (s Schema) About(key string) string {
	property, _ := s.Properties()[key].(Object)
	title, _ := property["title"].(string)
	description, _ := property["description"].(string)
	var notes []string
	if text := cmp.Or(description, title); text != "" {
		notes = append(notes, render.Line(text))
	}
	if options := s.Options(key); len(options) > 0 {
		var values []string
		for _, o := range options {
			values = append(values, o.Text())
		}
		notes = append(notes, "one of: "+strings.Join(values, ", "))
	}
	for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "default"} {
		if value, ok := property[keyword]; ok {
			notes = append(notes, keyword+": "+render.Line(valueText(value)))
		}
	}
	return strings.Join(notes, "; ")
}

// Usage returns the keys with their types, optional ones in brackets.
func (s Schema) Usage() (words []string) {
	for _, key := range s.Keys() {
		kind := cmp.Or(strings.ToUpper(strings.Join(s.Kinds(key), "|")), "VALUE")
		word := fmt.Sprintf("%s=%s", render.Line(key), render.Line(kind))
		if !s.Requires(key) {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return words
}

// synopsis shows how the tool is called.
func (s Schema) synopsis(tool string) string {
	return strings.Join(append([]string{"It takes: bowline call " + render.Line(tool)}, s.Usage()...), " ")
}

// valueText returns a value as it is typed on the command line.
func valueText(value any) string {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return "?"
	}
	return Option{Value: raw}.Text()
}
