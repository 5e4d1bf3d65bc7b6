package typed

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/features/internal/paramheader"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// This file contains the second pass over a type: what the tags of its fields add to the schema
// that package jsonschema has inferred. The tags are listed at server.AddTool.

// describeFields adds the tags of fields to a schema, for all structs in a type. Schema and type
// are walked together: the schema of an element describes the element of the type. A type with a
// schema of its own has no fields that are seen.
func describeFields(t reflect.Type, s *jsonschema.Schema) error {
	if s == nil || ownSchema(t) != nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		nullable := s.Types
		err := describeFields(t.Elem(), s)
		if nullable != nil { // a nil pointer to a list is encoded as null
			s.Type, s.Types = "", nullable
		}
		return err
	case reflect.Slice, reflect.Array:
		s.Type, s.Types = "array", nil // a nil list is encoded as an empty one, and models refuse several types
		return describeFields(t.Elem(), s.Items)
	case reflect.Map:
		return describeFields(t.Elem(), s.AdditionalProperties)
	case reflect.Struct:
		return describeStruct(t, s)
	default:
		return nil
	}
}

// describeStruct describes the fields that package jsonschema found. It leaves out others, such as
// one that a field of an outer struct hides. What may be missing is no longer required: with a
// default, a pointer, or an option of the json tag.
func describeStruct(t reflect.Type, s *jsonschema.Schema) error {
	for _, field := range reflect.VisibleFields(t) {
		name, options, encoded := nameOf(field)
		property := s.Properties[name]
		if !encoded || property == nil {
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

// nameOf returns the name of a field in JSON and its options there. The fields of an embedded
// struct count as those of the outer one, so it has no name itself.
func nameOf(field reflect.StructField) (name, options string, encoded bool) {
	name, options, _ = strings.Cut(field.Tag.Get("json"), ",")
	if name == "-" || !field.IsExported() || field.Anonymous {
		return "", "", false
	}
	return cmp.Or(name, field.Name), options, true
}

// describeField reads the tags that have names of JSON Schema, and those that only this package
// has. The default comes last: it has to fit what the other tags say.
func describeField(field reflect.StructField, s *jsonschema.Schema) error {
	if err := checkLimits(field.Tag, s); err != nil {
		return err
	}
	describeTexts(field.Tag, s)
	if err := describeBounds(field.Tag, s); err != nil {
		return err
	}
	if err := describeEnum(field.Tag, s); err != nil {
		return fmt.Errorf("tag enum: %w", err)
	}
	if err := describeDefault(field, s); err != nil {
		return fmt.Errorf("tag default: %w", err)
	}
	return nil
}

// checkLimits fails for a limit of another type than the field's, which would limit nothing. A type that marshals itself may be any.
func checkLimits(tag reflect.StructTag, s *jsonschema.Schema) error {
	number, text := []string{"integer", "number"}, []string{"string"}
	for _, limit := range []struct {
		key   string
		types []string
	}{{"minimum", number}, {"maximum", number}, {"minLength", text}, {"maxLength", text}, {"pattern", text}} {
		has := func(one string) bool { return s.Type == one || slices.Contains(s.Types, one) }
		if _, ok := tag.Lookup(limit.key); ok && (s.Type != "" || s.Types != nil) && !slices.ContainsFunc(limit.types, has) {
			return fmt.Errorf("tag %s: it has no effect on a field of type %s", limit.key, cmp.Or(s.Type, strings.Join(s.Types, " or ")))
		}
	}
	return nil
}

// describeTexts reads the tags whose text is taken as it is. Whether a pattern is valid is found
// when the whole schema is compiled. The header is a keyword that package jsonschema does not know.
func describeTexts(tag reflect.StructTag, s *jsonschema.Schema) {
	for key, to := range map[string]*string{"format": &s.Format, "pattern": &s.Pattern, "title": &s.Title} {
		if text, ok := tag.Lookup(key); ok {
			*to = text
		}
	}
	if header, ok := tag.Lookup("header"); ok {
		if s.Extra == nil {
			s.Extra = make(map[string]any)
		}
		s.Extra[paramheader.Keyword] = header
	}
}

// describeBounds reads the tags that are numbers. Lengths are whole ones; what follows the point is
// dropped.
func describeBounds(tag reflect.StructTag, s *jsonschema.Schema) error {
	for _, bound := range []struct {
		key string
		set func(float64)
	}{
		{"minimum", func(f float64) { s.Minimum = &f }},
		{"maximum", func(f float64) { s.Maximum = &f }},
		{"minLength", func(f float64) { n := int(f); s.MinLength = &n }},
		{"maxLength", func(f float64) { n := int(f); s.MaxLength = &n }},
	} {
		text, ok := tag.Lookup(bound.key)
		if !ok {
			continue
		}
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("tag %s: %w", bound.key, err)
		}
		bound.set(number)
	}
	return nil
}

// describeEnum reads the values that a field may have. For a list, they are those of its elements:
// nobody lists all lists.
func describeEnum(tag reflect.StructTag, s *jsonschema.Schema) error {
	all, ok := tag.Lookup("enum")
	if !ok {
		return nil
	}
	if s.Items != nil {
		s = s.Items
	}
	for text := range strings.SplitSeq(all, ",") {
		value, err := literal(s, text)
		if err != nil {
			return err
		}
		s.Enum = append(s.Enum, value)
	}
	return nil
}

// describeDefault reads the default of a field. It tries it out: one that the type or the other
// tags do not allow would make each call fail that leaves the field out, so it is refused when the
// feature is added.
func describeDefault(field reflect.StructField, s *jsonschema.Schema) error {
	text, ok := field.Tag.Lookup("default")
	if !ok {
		return nil
	}
	value, err := literal(s, text)
	if err != nil {
		return err
	}
	if s.Default, err = protocol.Marshal(value); err != nil {
		return err
	}
	// With the options of a call: what would be refused there must be refused here.
	if err := json.Unmarshal(s.Default, reflect.New(field.Type).Interface(), typed); err != nil {
		return err
	}
	return checkDefault(s)
}

// checkDefault fails if the default of a field does not fit the field's other tags. Formats are
// checked as those of forms are, because the client will check them.
func checkDefault(s *jsonschema.Schema) error {
	raw, err := protocol.Marshal(s)
	if err != nil {
		return err
	}
	field, err := schema.CompileForm(context.Background(), raw)
	if err != nil {
		return err
	}
	return field.Validate(context.Background(), s.Default)
}

// literal parses the text of a tag as a value of the schema's type. Strings are used
// unchanged, so that a tag needs no quotes within its own; other values are JSON.
func literal(s *jsonschema.Schema, text string) (value any, err error) {
	if isText(s) {
		return text, nil
	}
	return value, protocol.Unmarshal([]byte(text), &value)
}

// isText reports whether a schema says that a value may be a string.
func isText(s *jsonschema.Schema) bool {
	return s.Type == "string" || slices.Contains(s.Types, "string")
}
