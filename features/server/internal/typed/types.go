package typed

import (
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/jsonschema-go/jsonschema"
)

// This file contains how a type is written in JSON, as far as that does not follow from its kind:
// the options of the codec, and the first pass over a type, which gives schemas to the types that
// encode themselves. The two must agree, so they stand together.

// typed is the result of typedJSON, which takes long to make. It does not change.
var typed = typedJSON()

// typedJSON returns the options with which typed tools decode and encode values: as
// encoding/json does, which inferred schemas follow, but as strictly as the rest of the
// protocol. Nil slices and maps are encoded as empty ones.
//
// Each option here is a difference from encoding/json. Names that differ only in case, and names
// that are there twice, would let a middleware check one value and the handler get another. Text in
// a result is for a model, not for a page of HTML, so it is not escaped.
func typedJSON() json.Options {
	return json.JoinOptions(
		jsonv1.DefaultOptionsV1(),
		jsonv1.CallMethodsWithLegacySemantics(false),
		jsonv1.MergeWithLegacySemantics(false),
		jsonv1.ReportErrorsWithLegacySemantics(false),
		jsonv1.UnmarshalArrayFromAnyLength(false),
		json.FormatNilMapAsNull(false),
		json.FormatNilSliceAsNull(false),
		json.MatchCaseInsensitiveNames(false),
		jsontext.AllowDuplicateNames(false),
		jsontext.EscapeForHTML(false),
		jsontext.EscapeForJS(false),
	)
}

// errRecursive says why a type has no inferred schema.
var errRecursive = errors.New("it contains itself: set the schema")

// ownSchemas contains the schemas of types whose encoding does not follow from their
// kind. Package jsonschema takes them in place of its own inference, wherever a type contains one.
type ownSchemas map[reflect.Type]*jsonschema.Schema

// collect examines all types that t consists of. It fails for types that package
// jsonschema would describe incorrectly.
//
// Seen has each type that was examined: true while that lasts, so that a type within itself is
// found, and false afterwards, so that a type with many fields of one kind is examined once.
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

// collectFields collects the fields of a struct, and lets the decoder have a look at it: what it
// refuses could never be called. Fields that JSON does not show are left out, but not embedded
// structs, whose own fields may be exported.
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

// checkField fails for a field with a tag or embedding that inferred schemas do not support. A tag
// such as string changes how a value is encoded, and the inferred schema would still describe a
// number.
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
	return checkTags(field)
}

// checkTags fails for tags that look as if they limited a field, and would not: those of JSON Schema that describeField does not read, and those
// that other packages have in the tag jsonschema.
func checkTags(field reflect.StructField) error {
	if key, _, isSetting := strings.Cut(field.Tag.Get("jsonschema"), "="); isSetting && !strings.ContainsAny(key, " \t\n") {
		return fmt.Errorf("field %s: the tag jsonschema is a description, and begins with %q: limits are tags of their own, such as `minimum:\"1\"`", field.Name, key+"=")
	}
	for _, keyword := range []string{"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"} {
		if _, ok := field.Tag.Lookup(keyword); ok {
			return fmt.Errorf("field %s: the tag %s is not read: set the schema", field.Name, keyword)
		}
	}
	return nil
}

// ownSchema returns the schema of a type whose encoding does not follow from its kind,
// and nil for other types.
//
// The order matters. A type that lists its values is an enum, however it encodes itself. The types
// of the standard library come before what they implement, because of them more is known. A type
// that writes its own JSON may write anything; one that writes a text is a text; and bytes are
// base64, unless their element has an encoding of its own.
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

// An enumerated type lists its possible values, as texts. Programs implement it without an import:
// it has no exported name.
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
