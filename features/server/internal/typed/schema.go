package typed

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/google/jsonschema-go/jsonschema"
)

// A Schema is the JSON Schema of a Go type: what clients see. What arguments must fit is slightly
// more, see Accepted.
type Schema struct {
	*jsonschema.Schema
	Binary bool // the type is []byte, which is a text in JSON: content needs a block that names its type
}

// Infer returns the schema of a type; a pointer has the schema of its element. It panics if there
// is none: a type is fixed when the program is written, so that is a mistake which its first run
// must show.
func Infer(t reflect.Type) Schema {
	s, err := derive(t)
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err))
	}
	return s
}

// InferUnless does what Infer does. But if the program has set a schema, the type may be recursive;
// of such a type it returns only the kind. That is enough to know how its values become results;
// what fits it, the schema of the program says. Other types that cannot be described still panic.
func InferUnless(set stdjson.RawMessage, t reflect.Type) Schema {
	if _, err := derive(t); len(set) == 0 || !errors.Is(err, errRecursive) {
		return Infer(t)
	}
	switch elem(t).Kind() {
	case reflect.Struct:
		return Schema{Schema: &jsonschema.Schema{Type: "object"}}
	case reflect.Map:
		return Schema{Schema: &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{}}}
	default:
		return Schema{Schema: &jsonschema.Schema{Type: "array"}}
	}
}

// elem returns what pointers point to. Null is not a value of its own in an inferred schema: models often refuse several types.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// derive infers the schema of a type in two passes, because package jsonschema reads neither our tags nor the types that
// encode themselves. It fails, in place of describing a type wrongly.
func derive(t reflect.Type) (Schema, error) {
	t = elem(t)
	if t.Kind() == reflect.Interface {
		return Schema{}, errors.New("an interface may be anything: name a concrete type")
	}
	// First all types, so that the error names what is wrong: package jsonschema would describe some of them, and
	// wrongly.
	schemas := ownSchemas{}
	if err := schemas.collect(t, map[reflect.Type]bool{}); err != nil {
		return Schema{}, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: schemas})
	if err == nil {
		err = describeFields(t, s)
	}
	return Schema{s, t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !speaks[stdjson.Marshaler](t)}, err
}

// InferObject does what InferUnless does, for a type that must be a JSON object, as arguments are:
// MCP has no others.
func InferObject(t reflect.Type, set stdjson.RawMessage) Schema {
	s := InferUnless(set, t)
	if !s.IsObject() {
		panic(fmt.Sprintf("schema of %v: it is not an object in JSON", t))
	}
	return s
}

// IsObject reports whether values of the type are objects in JSON. Others are wrapped for clients
// that know only objects.
func (s Schema) IsObject() bool { return s.Type == "object" }

// TakesAny reports whether the object may have members with any name, as a map.
func (s Schema) TakesAny() bool {
	return s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil
}

// Wrap returns the schema of an object with one required member, for values that are no objects.
// The wrapped schema is shared.
// The specification allows only objects as structured content before 2026-07-28 (2025-11-25 server/tools).
func (s Schema) Wrap(name string) Schema {
	return Schema{Schema: &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{name: s.Schema}, Required: []string{name}}}
}

// Accepted returns the schema that arguments must fit: null is accepted for any list, as none,
// although the schema that clients see does not say so: models write null for none, and a schema
// with two types confuses many of them. It is a copy, because what clients see must not change.
func (s Schema) Accepted() stdjson.RawMessage {
	return Schema{Schema: withNullLists(s.CloneSchemas())}.MustMarshal()
}

// withNullLists changes a schema so that each list may be null, but not an array of Go, which has a
// fixed length. It goes where lists may be, and nowhere else: inferred schemas have no other
// keywords with schemas in them.
func withNullLists(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if s.Type == "array" && s.MinItems == nil {
		s.Type, s.Types = "", []string{"null", "array"}
	}
	for _, property := range s.Properties {
		withNullLists(property)
	}
	withNullLists(s.Items)
	withNullLists(s.AdditionalProperties)
	return s
}

// MustMarshal returns the schema as JSON. It panics if a tag has a value that JSON does not have: that is found when the feature
// is added.
func (s Schema) MustMarshal() stdjson.RawMessage {
	raw, err := protocol.Marshal(s.Schema)
	if err != nil {
		panic(err)
	}
	return raw
}

// MustCompile compiles a schema of the program, whose values must be objects. It panics if that
// fails, as Infer does. The result may be used by any goroutine.
func MustCompile(raw stdjson.RawMessage) *schema.Validator {
	validator, err := schema.Compile(context.Background(), raw)
	if err == nil && !validator.IsObject() {
		err = errors.New(`schema: its type is not "object"`)
	}
	if err != nil {
		panic(err)
	}
	return validator
}
