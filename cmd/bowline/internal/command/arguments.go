package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// largestInput is the maximum size of arguments from standard input, in bytes. A
// frame cannot be larger.
const largestInput = 16 << 20

// arguments holds the arguments of a tool as the command line gives them: one
// object, or pairs that become one when the schema of the tool is known.
type arguments struct {
	whole json.RawMessage
	pairs []pair
}

type pair struct {
	key, value string
	json       bool // the value is JSON, whatever the schema says
}

func readArguments(ctx context.Context, args []string, stdin io.Reader) (arguments, error) {
	switch {
	case len(args) == 0:
		return arguments{whole: json.RawMessage("{}")}, nil
	case len(args) == 1 && args[0] == "-":
		raw, err := readInput(ctx, stdin)
		if err != nil {
			return arguments{}, fmt.Errorf("standard input: %w", err)
		}
		return readObject("standard input", raw)
	case len(args) == 1 && strings.HasPrefix(strings.TrimSpace(args[0]), "{"):
		return readObject("the argument", []byte(args[0]))
	default:
		return readPairs(args)
	}
}

// readInput reads all of standard input.
func readInput(ctx context.Context, stdin io.Reader) ([]byte, error) {
	raw, err := await(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(stdin, largestInput+1)) })
	if len(raw) > largestInput {
		return nil, fmt.Errorf("above the limit of %d bytes", largestInput)
	}
	return raw, err
}

// await returns what read returns, or the cause of the context once that ends.
// The goroutine of read then continues until the process ends, because reading
// a terminal, a pipe or a FIFO cannot be interrupted.
func await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		value, err := read()
		ended <- outcome{value, err}
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

func readObject(where string, raw []byte) (arguments, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return arguments{}, fmt.Errorf("%s is empty: give a JSON object", where)
	}
	var value any
	if err := protocol.Unmarshal(raw, &value); err != nil {
		return arguments{}, fmt.Errorf("%s is not JSON: %w", where, errors.Unwrap(err))
	}
	if _, ok := value.(object); !ok {
		return arguments{}, fmt.Errorf("%s is JSON, but not an object", where)
	}
	return arguments{whole: raw}, nil
}

func readPairs(args []string) (arguments, error) {
	var given arguments
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		isJSON := strings.HasSuffix(key, ":")
		key = strings.TrimSuffix(key, ":")
		if !ok || key == "" {
			return given, fmt.Errorf("argument %q is not KEY=VALUE, and not the one JSON object", arg)
		}
		if slices.ContainsFunc(given.pairs, func(p pair) bool { return p.key == key }) {
			return given, fmt.Errorf("argument %q is given twice", key)
		}
		if isJSON && !json.Valid([]byte(value)) {
			return given, fmt.Errorf("argument %q: the value after := is not JSON: %s", key, value)
		}
		given.pairs = append(given.pairs, pair{key, value, isJSON})
	}
	return given, nil
}

// fit returns the arguments as one object that fits the schema of the tool. Its
// error says what is wrong, and how the tool is called.
func (a arguments) fit(ctx context.Context, tool *protocol.Tool) (json.RawMessage, error) {
	schema := readSchema(ctx, tool.InputSchema, jsonschema.Compile)
	whole := a.whole
	if whole == nil {
		members := make(map[string]json.RawMessage, len(a.pairs))
		for _, p := range a.pairs {
			value, err := p.parse(schema.types(p.key))
			if err != nil {
				return nil, fmt.Errorf("%w\n%s", err, schema.synopsis(tool.Name))
			}
			members[p.key] = value
		}
		var err error
		if whole, err = protocol.Marshal(members); err != nil {
			return nil, err
		}
	}
	if err := schema.validate(ctx, whole); err != nil {
		return nil, fmt.Errorf("the arguments do not fit the schema of tool %q: %w\n%s", tool.Name, err, schema.synopsis(tool.Name))
	}
	return whole, nil
}

// parse returns the value as JSON. It is a string if the schema allows strings
// or does not state a type.
func (p pair) parse(types []string) (json.RawMessage, error) {
	switch {
	case p.json:
		return json.RawMessage(p.value), nil
	case len(types) == 0 || slices.Contains(types, "string"):
		return protocol.Marshal(p.value)
	case !json.Valid([]byte(p.value)) || !slices.ContainsFunc(types, func(t string) bool { return isOfType(p.value, t) }):
		return nil, fmt.Errorf("argument %q: expected %s, got %q", p.key, strings.Join(types, " or "), p.value)
	default:
		return json.RawMessage(p.value), nil
	}
}

// isOfType reports whether a JSON text has a type of JSON Schema.
func isOfType(text, name string) bool {
	var value any
	if protocol.Unmarshal([]byte(text), &value) != nil {
		return false
	}
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	default:
		return false
	}
}

// A schema contains the parts of an input schema, of a tool or a question, that
// this command understands. The server checks the rest.
type schema struct {
	root      object
	order     []string              // the names of the properties in their order
	validator *jsonschema.Validator // checks the arguments; nil: only the server checks them
}

type object = map[string]any

// readSchema reads a schema. Compile is that of package schema for tools, or for forms.
func readSchema(ctx context.Context, raw json.RawMessage, compile func(context.Context, json.RawMessage) (*jsonschema.Validator, error)) schema {
	var root object
	if protocol.Unmarshal(raw, &root) != nil {
		return schema{}
	}
	validator, err := compile(ctx, raw)
	if err != nil {
		validator = nil // only the server checks the arguments
	}
	return schema{root: root, order: propertyOrder(raw), validator: validator}
}

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

// validate reports what is wrong with arguments, as far as this command can check
// them.
func (s schema) validate(ctx context.Context, arguments json.RawMessage) error {
	if s.validator == nil {
		return nil
	}
	return s.validator.Validate(ctx, arguments)
}

// properties returns the members that the schema names.
func (s schema) properties() object {
	properties, _ := s.root["properties"].(object)
	return properties
}

// types returns the JSON types that a property may have, or none if the schema
// does not state them.
func (s schema) types(property string) []string {
	types := s.typesOf(s.properties()[property], make(map[string]bool))
	slices.Sort(types)
	return slices.Compact(types)
}

// typesOf follows each reference only once, because references may form a cycle.
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

// requires reports whether a property must be given.
func (s schema) requires(property string) bool {
	required, _ := s.root["required"].([]any)
	return slices.Contains(required, any(property))
}

// synopsis shows how the tool is called.
func (s schema) synopsis(tool string) string {
	return strings.Join(append([]string{"It takes: bowline call " + line(tool)}, s.usage()...), " ")
}

// kinds returns the types of a property for people: null only if there is no other.
func (s schema) kinds(property string) []string {
	types := s.types(property)
	if len(types) > 1 {
		types = slices.DeleteFunc(types, func(name string) bool { return name == "null" })
	}
	return types
}

// usage returns the keys with their types, optional ones in brackets.
func (s schema) usage() (words []string) {
	for _, key := range s.keys() {
		kind := cmp.Or(strings.ToUpper(strings.Join(s.kinds(key), "|")), "VALUE")
		word := fmt.Sprintf("%s=%s", line(key), line(kind))
		if !s.requires(key) {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return words
}
