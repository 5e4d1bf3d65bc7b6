package arguments

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// unknown stands for a value that the user must find.
const unknown = "…"

// Example shows a call with a value for each required argument, or with an ellipsis where no value
// was found that the schema allows. What a shell would change is in quotes, because the names and
// values are those of the server.
func (s Schema) Example(ctx context.Context, tool, server string) string {
	words := []string{"bowline", "call"}
	if strings.HasPrefix(tool, "-") {
		words = append(words, server, "--")
		server = ""
	}
	words = append(append(words, render.Quote(tool)), s.sampleArguments(ctx)...)
	if server != "" {
		words = append(words, server)
	}
	return strings.Join(words, " ")
}

// sampleArguments returns the required arguments as words of a command line.
func (s Schema) sampleArguments(ctx context.Context) (words []string) {
	keys := slices.DeleteFunc(s.Keys(), func(key string) bool { return !s.Requires(key) })
	values := make(map[string]any, len(keys))
	search := &sampleSearch{Schema: s, budget: mostSchemas}
	for _, key := range keys {
		if found := search.samples(ctx, s.Properties()[key], key, 0); len(found) > 0 {
			values[key] = found[0]
		}
	}
	if raw, err := protocol.Marshal(values); len(values) == len(keys) && (err != nil || s.Validate(ctx, raw) != nil) {
		clear(values) // they do not fit together
	}
	plain := true
	for _, key := range keys {
		plain = plain && !strings.HasPrefix(key, "-") && !strings.ContainsAny(key, "=:") && key != ""
		if value, ok := values[key]; ok {
			words = append(words, render.Quote(s.pairOf(key, value)))
		} else {
			words = append(words, render.Quote(key)+"="+unknown)
			values[key] = unknown
		}
	}
	if plain {
		return words
	}
	raw, err := protocol.Marshal(values) // such a name cannot be the KEY of a pair
	if err != nil {
		return words
	}
	return []string{render.Quote(string(raw))}
}

// pairOf returns an argument as it is given on the command line: as JSON if its text would be taken
// for another value.
func (s Schema) pairOf(key string, value any) string {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return key + "=" + unknown
	}
	text := valueText(value)
	if read, err := (Pair{key: key, Value: text}).Parse(s.Types(key)); err == nil && bytes.Equal(read, raw) {
		return key + "=" + text
	}
	return key + ":=" + string(raw)
}

const (
	mostSchemas = 64 // subschemas are compiled for an example
	mostTried   = 1024
	mostNested  = 5
	mostItems   = 16
)

// A sampleSearch looks for values that a schema of a server allows.
type sampleSearch struct {
	Schema
	budget int // subschemas that may still be compiled
	tried  int // subschemas whose candidates were asked for
}

// samples returns values that a subschema allows, the best one first. The name is that of the
// argument.
func (s *sampleSearch) samples(ctx context.Context, sub any, name string, depth int) []any {
	if depth > mostNested || s.budget <= 0 {
		return nil
	}
	s.budget--
	allows, ok := s.checker(ctx, sub)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(s.candidates(ctx, sub, name, depth), func(value any) bool { return !allows(value) })
}

// checker returns what tells whether a subschema allows a value. If the schema of the tool cannot
// be compiled, only the server checks values.
func (s *sampleSearch) checker(ctx context.Context, sub any) (allows func(any) bool, ok bool) {
	if s.validator == nil {
		return func(any) bool { return true }, true
	}
	raw, err := protocol.Marshal(s.alone(sub))
	if err != nil {
		return nil, false
	}
	validator, err := jsonschema.Compile(ctx, raw)
	if err != nil {
		return nil, false
	}
	return func(value any) bool {
		raw, err := protocol.Marshal(Object{"value": value})
		return err == nil && validator.Validate(ctx, raw) == nil
	}, true
}

// alone returns the schema of an object with one value, with all that the subschema may refer to.
func (s *sampleSearch) alone(sub any) Object {
	one := Object{"properties": Object{"value": sub}}
	for _, keyword := range []string{"$schema", "$defs", "definitions"} {
		if s.root[keyword] != nil {
			one[keyword] = s.root[keyword]
		}
	}
	return one
}

// candidates returns values to try for a subschema: its default, its examples, its options, those
// of its parts, and values of its types.
func (s *sampleSearch) candidates(ctx context.Context, sub any, name string, depth int) (values []any) {
	about, _ := sub.(Object)
	if depth > mostNested || s.tried >= mostTried { // the parts of a schema may refer to each other
		return nil
	}
	s.tried++
	for _, keyword := range []string{"default", "const"} {
		if value, ok := about[keyword]; ok {
			values = append(values, value)
		}
	}
	for _, keyword := range []string{"examples", "enum"} {
		listed, _ := about[keyword].([]any)
		values = append(values, listed[:min(len(listed), mostItems)]...)
	}
	if ref, ok := about["$ref"].(string); ok {
		target, _ := jsonschema.Resolve(s.root, ref)
		values = append(values, s.candidates(ctx, target, name, depth+1)...)
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		parts, _ := about[keyword].([]any)
		for _, part := range parts[:min(len(parts), mostItems)] {
			values = append(values, s.candidates(ctx, part, name, depth+1)...)
		}
	}
	types := named(about["type"])
	if len(types) == 0 && len(values) == 0 {
		types = []string{"string"}
	}
	for _, kind := range []string{"string", "boolean", "array", "object", "integer", "number", "null"} {
		if slices.Contains(types, kind) {
			values = append(values, s.ofType(ctx, kind, about, name, depth)...)
		}
	}
	return values
}

func (s *sampleSearch) ofType(ctx context.Context, kind string, about Object, name string, depth int) []any {
	switch kind {
	case "string":
		return texts(about, name)
	case "boolean":
		return []any{true, false}
	case "array":
		return s.lists(ctx, about, name, depth)
	case "object":
		return []any{s.members(ctx, about, depth)}
	case "null":
		return []any{json.RawMessage("null")}
	default:
		return numbers(about)
	}
}

// members returns an object with a value for each member that is required, as far as one is found.
func (s *sampleSearch) members(ctx context.Context, about Object, depth int) Object {
	members := Object{}
	required, _ := about["required"].([]any)
	properties, _ := about["properties"].(Object)
	for _, one := range required[:min(len(required), mostSchemas)] {
		key, _ := one.(string)
		if found := s.samples(ctx, properties[key], key, depth+1); len(found) > 0 {
			members[key] = found[0]
		}
	}
	return members
}

// lists returns the shortest list, with different elements if they must differ.
func (s *sampleSearch) lists(ctx context.Context, about Object, name string, depth int) []any {
	least, _ := about["minItems"].(float64)
	if least <= 0 {
		return []any{[]any{}}
	}
	items, ok := about["items"]
	if !ok {
		items = Object{"type": "string"}
	}
	found := s.samples(ctx, items, name, depth+1)
	if least > mostItems || len(found) == 0 {
		return nil
	}
	same, different := []any{}, []any{}
	for i := range int(math.Ceil(least)) {
		same, different = append(same, found[0]), append(different, found[i%len(found)])
	}
	return []any{same, different}
}

// texts returns a text of the format, or the name of the argument, as long as it must be.
func texts(about Object, name string) []any {
	text := strings.ToUpper(name)
	if least, ok := about["minLength"].(float64); ok && least <= 1<<10 {
		text += strings.Repeat("A", max(0, int(math.Ceil(least))-utf8.RuneCountInString(text)))
	}
	if most, ok := about["maxLength"].(float64); ok && most < float64(utf8.RuneCountInString(text)) {
		text = string([]rune(text)[:max(int(most), 0)])
	}
	values := []any{text, "1", "a", "abc", "abc123"}
	format, _ := about["format"].(string)
	if of := map[string]string{
		"email": "ada@example.com", "uri": "https://example.com/", "uri-reference": "/path", "date": "2026-11-26",
		"date-time": "2026-11-26T15:04:05Z", "time": "15:04:05Z", "duration": "PT1H", "hostname": "example.com",
		"ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
	}[format]; of != "" {
		values = slices.Insert(values, 0, any(of))
	}
	return values
}

// numbers returns 1 or the minimum, and numbers at the bounds.
func numbers(about Object) []any {
	low, hasLow := about["minimum"].(float64)
	values := []any{max(1, low)}
	step, stepped := about["multipleOf"].(float64)
	add := func(value float64) {
		values = append(values, value, math.Ceil(value), math.Floor(value))
		if stepped && step > 0 {
			values = append(values, math.Ceil(value/step)*step, math.Floor(value/step)*step)
		}
	}
	if hasLow {
		add(low)
	}
	if above, ok := about["exclusiveMinimum"].(float64); ok {
		low, hasLow = above, true
		values = append(values, math.Floor(above)+1)
		add(above + cmp.Or(step, 1))
	}
	high, hasHigh := about["maximum"].(float64)
	if hasHigh {
		add(high)
	}
	if below, ok := about["exclusiveMaximum"].(float64); ok {
		high, hasHigh = below, true
		values = append(values, math.Ceil(below)-1)
		add(below - cmp.Or(step, 1))
	}
	if hasLow && hasHigh {
		add(low/2 + high/2)
	}
	add(step)
	values = append(values, 0.0)
	return slices.DeleteFunc(values, func(v any) bool { f := v.(float64); return math.IsInf(f, 0) || math.IsNaN(f) })
}
