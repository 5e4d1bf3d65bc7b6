package server

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// infer is the JSON Schema of a Go type, or of what a pointer points to.
func infer(tool string, t reflect.Type) stdjson.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	raw, err := inferred(t)
	if err != nil {
		panic(fmt.Sprintf("server: tool %q: schema of %v: %v", tool, t, err))
	}
	return raw
}

func inferred(t reflect.Type) (stdjson.RawMessage, error) {
	schemas := ownSchemas{}
	if err := schemas.collect(t, map[reflect.Type]bool{}); err != nil {
		return nil, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: schemas})
	if err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("%v is not an object in JSON", t)
	}
	return protocol.Marshal(s)
}

// ownSchemas are the schemas of types that are not written as their kind is.
type ownSchemas map[reflect.Type]*jsonschema.Schema

// collect looks at all types that t is made of. It refuses what package
// jsonschema takes for something else than is written.
func (o ownSchemas) collect(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
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
	return nil
}

// checkField refuses fields whose tag or embedding no inferred schema follows.
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

// ownSchema is the schema of a type that is not written as its kind is: nil for
// the others.
func ownSchema(t reflect.Type) *jsonschema.Schema {
	switch {
	case t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer:
		return nil
	case t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[slog.Level]():
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

// anything allows every value. It lists all types, since package jsonschema
// adds null to those of a pointer.
func anything() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"null", "boolean", "object", "array", "number", "string"}}
}

// speaks reports whether a value of type t, or its address, is an I.
func speaks[I any](t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[I]()) }
