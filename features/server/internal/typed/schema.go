package typed

import (
	"context"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/mirror"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// A Schema is the JSON Schema of a Go type.
type Schema struct {
	*jsonschema.Schema
	Binary bool // the type is []byte
}

// errRecursive says why a type has no inferred schema.
var errRecursive = errors.New("it contains itself: set the schema")

// Infer returns the schema of a type; a pointer has the schema of its element. It panics
// if there is none.
func Infer(t reflect.Type) Schema {
	s, err := derive(t)
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err))
	}
	return s
}

// InferUnless does what Infer does. But if the program has set a schema, the type may be
// recursive; of such a type it returns only the kind.
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

// InferObject does what InferUnless does, for a type that must be a JSON object.
func InferObject(t reflect.Type, set stdjson.RawMessage) Schema {
	s := InferUnless(set, t)
	if !s.IsObject() {
		panic(fmt.Sprintf("schema of %v: it is not an object in JSON", t))
	}
	return s
}

// IsObject reports whether values of the type are objects in JSON.
func (s Schema) IsObject() bool { return s.Type == "object" }

// TakesAny reports whether the object may have members with any name, as a map.
func (s Schema) TakesAny() bool {
	return s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil
}

// Wrap returns the schema of an object with one required member.
func (s Schema) Wrap(name string) Schema {
	return Schema{Schema: &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{name: s.Schema}, Required: []string{name}}}
}

// Accepted returns the schema that arguments must fit: null is accepted for any list, as none,
// although the schema that clients see does not say so.
func (s Schema) Accepted() stdjson.RawMessage {
	return Schema{Schema: withNullLists(s.CloneSchemas())}.MustMarshal()
}

// withNullLists changes a schema so that each list may be null, but not an array of Go, which
// has a fixed length.
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

// describeFields adds the tags of fields to a schema, for all structs in a type.
func describeFields(t reflect.Type, s *jsonschema.Schema) error {
	switch {
	case s == nil || ownSchema(t) != nil:
		return nil
	case t.Kind() == reflect.Pointer:
		nullable := s.Types
		err := describeFields(t.Elem(), s)
		if nullable != nil { // a nil pointer to a list is encoded as null
			s.Type, s.Types = "", nullable
		}
		return err
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		s.Type, s.Types = "array", nil // a nil list is encoded as an empty one, and models refuse several types
		return describeFields(t.Elem(), s.Items)
	case t.Kind() == reflect.Map:
		return describeFields(t.Elem(), s.AdditionalProperties)
	case t.Kind() != reflect.Struct:
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() || field.Anonymous {
			continue
		}
		if name == "" {
			name = field.Name
		}
		property := s.Properties[name]
		if property == nil {
			continue
		}
		if reflect.ValueOf(*property).IsZero() { // it would be encoded as true, but MCP requires an object
			property.Types = anything().Types
		}
		if err := describeField(field, property); err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
		if err := describeFields(field.Type, property); err != nil {
			return err
		}
		optional := field.Type.Kind() == reflect.Pointer || property.Default != nil || options != ""
		if optional {
			s.Required = slices.DeleteFunc(s.Required, func(required string) bool { return required == name })
		}
	}
	return nil
}

// describeField reads the tags that have names of JSON Schema.
func describeField(field reflect.StructField, s *jsonschema.Schema) error {
	var problem error
	number := func(key string, set func(float64)) {
		if text, ok := field.Tag.Lookup(key); ok {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				problem = fmt.Errorf("tag %s: %w", key, err)
			}
			set(f)
		}
	}
	number("minimum", func(f float64) { s.Minimum = &f })
	number("maximum", func(f float64) { s.Maximum = &f })
	number("minLength", func(f float64) { n := int(f); s.MinLength = &n })
	number("maxLength", func(f float64) { n := int(f); s.MaxLength = &n })
	for key, to := range map[string]*string{"format": &s.Format, "pattern": &s.Pattern, "title": &s.Title} {
		if text, ok := field.Tag.Lookup(key); ok {
			*to = text
		}
	}
	if header, ok := field.Tag.Lookup("header"); ok {
		if s.Extra == nil {
			s.Extra = make(map[string]any)
		}
		s.Extra[mirror.Keyword] = header
	}
	if all, ok := field.Tag.Lookup("enum"); ok {
		of := s
		if s.Items != nil { // for a list, the tags describe its elements
			of = s.Items
		}
		for text := range strings.SplitSeq(all, ",") {
			value, err := literal(of, text)
			if err != nil {
				return fmt.Errorf("tag enum: %w", err)
			}
			of.Enum = append(of.Enum, value)
		}
	}
	if text, ok := field.Tag.Lookup("default"); ok {
		value, err := literal(s, text)
		if err != nil {
			return fmt.Errorf("tag default: %w", err)
		}
		if s.Default, err = protocol.Marshal(value); err != nil {
			return err
		}
		if err := json.Unmarshal(s.Default, reflect.New(field.Type).Interface(), typedJSON()); err != nil {
			return fmt.Errorf("tag default: %w", err)
		}
	}
	if problem == nil && s.Default != nil {
		problem = checkDefault(s)
	}
	return problem
}

// checkDefault fails if the default of a field does not fit the field's other tags.
func checkDefault(s *jsonschema.Schema) error {
	raw, err := protocol.Marshal(s)
	if err != nil {
		return err
	}
	field, err := schema.CompileForm(context.Background(), raw)
	if err != nil {
		return err
	}
	if err := field.Validate(context.Background(), s.Default); err != nil {
		return fmt.Errorf("tag default: %w", err)
	}
	return nil
}

// literal parses the text of a tag as a value of the schema's type. Strings are used
// unchanged; other values are JSON.
func literal(s *jsonschema.Schema, text string) (value any, err error) {
	if s.Type == "string" || slices.Contains(s.Types, "string") {
		return text, nil
	}
	return value, protocol.Unmarshal([]byte(text), &value)
}

// ownSchemas contains the schemas of types whose encoding does not follow from their
// kind.
type ownSchemas map[reflect.Type]*jsonschema.Schema

// collect examines all types that t consists of. It fails for types that package
// jsonschema would describe incorrectly.
func (o ownSchemas) collect(t reflect.Type, seen map[reflect.Type]bool) error {
	if within, known := seen[t]; within {
		return fmt.Errorf("%v: %w", t, errRecursive)
	} else if known {
		return nil
	}
	seen[t] = true
	defer func() { seen[t] = false }()
	if own := ownSchema(t); own != nil {
		o[t] = own
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return o.collect(t.Elem(), seen)
	case reflect.Struct:
		return o.collectFields(t, seen)
	default:
		return nil
	}
}

// collectFields collects the fields of a struct, and lets the decoder have a look at it: what it refuses could never be called.
func (o ownSchemas) collectFields(t reflect.Type, seen map[reflect.Type]bool) error {
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if tag == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		if err := checkField(field, tag); err != nil {
			return err
		}
		if err := o.collect(field.Type, seen); err != nil {
			return err
		}
	}
	if err := protocol.Unmarshal([]byte("{}"), reflect.New(t).Interface()); err != nil { // two fields have one name, say
		return errors.New(refusal.Explain(err))
	}
	return nil
}

// checkField fails for a field with a tag or embedding that inferred schemas do not
// support.
func checkField(field reflect.StructField, tag string) error {
	name, options, _ := strings.Cut(tag, ",")
	if field.Anonymous && (name != "" || field.Type.Kind() != reflect.Struct || ownSchema(field.Type) != nil) {
		return fmt.Errorf("embedded %v is not a plain struct: name the field or set the schema", field.Type)
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "", "omitempty", "omitzero":
		default:
			return fmt.Errorf("field %q has option %q: set the schema", name, option)
		}
	}
	return nil
}

// ownSchema returns the schema of a type whose encoding does not follow from its kind,
// and nil for other types.
func ownSchema(t reflect.Type) *jsonschema.Schema {
	switch {
	case t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer:
		return nil
	case speaks[enumerated](t):
		return enumeration(t)
	case t == reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[slog.Level]():
		return &jsonschema.Schema{Type: "string"}
	case t == reflect.TypeFor[big.Int]():
		return &jsonschema.Schema{Type: "integer"}
	case speaks[stdjson.Marshaler](t) || speaks[stdjson.Unmarshaler](t) ||
		speaks[json.MarshalerTo](t) || speaks[json.UnmarshalerFrom](t):
		return anything()
	case speaks[encoding.TextMarshaler](t) || speaks[encoding.TextAppender](t) || speaks[encoding.TextUnmarshaler](t):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && ownSchema(t.Elem()) == nil:
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	default:
		return nil
	}
}

// An enumerated type lists its possible values, as texts.
type enumerated interface{ EnumValues() []string }

// enumeration asks a zero value of the type, so the values must not depend on it.
func enumeration(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, value := range reflect.New(t).Interface().(enumerated).EnumValues() {
		s.Enum = append(s.Enum, value)
	}
	return s
}

// anything returns a schema that allows every value. It lists all types, because package
// jsonschema adds null to the types of a pointer.
func anything() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"null", "boolean", "object", "array", "number", "string"}}
}

// speaks reports whether type t, or a pointer to it, implements I.
func speaks[I any](t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[I]()) }

// MustCompile compiles a schema of the program.
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
