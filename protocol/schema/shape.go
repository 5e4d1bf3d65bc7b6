package schema

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// A shape is a schema of types, properties and items alone, as most tools have.
// It tells of most values that they surely fit, and of others nothing: what is
// wrong with those, if anything is, is for the full validator to say. A nil
// shape is one that every value fits.
type shape struct {
	types   []string          // nil: any
	members map[string]*shape // by name
	needed  map[string]bool   // the names that have to be there
	others  *shape            // of members without a name here
	closed  bool              // there may be none of those
	items   *shape
}

// shapeOf is the shape of a schema, unless there is more to it.
func shapeOf(s *jsonschema.Schema) (_ *shape, ok bool) {
	if s == nil {
		return nil, true
	}
	if !shapesOnly(*s) {
		return nil, false
	}
	built := &shape{types: s.Types, members: make(map[string]*shape), needed: make(map[string]bool)}
	if s.Type != "" {
		built.types = []string{s.Type}
	}
	for _, name := range s.Required {
		built.needed[name] = true
	}
	for name, member := range s.Properties {
		if built.members[name], ok = shapeOf(member); !ok {
			return nil, false
		}
	}
	if built.items, ok = shapeOf(s.Items); !ok {
		return nil, false
	}
	if built.closed = isFalse(s.AdditionalProperties); built.closed {
		return built, true
	}
	if built.others, ok = shapeOf(s.AdditionalProperties); !ok {
		return nil, false
	}
	return built, true
}

func isFalse(s *jsonschema.Schema) bool {
	return s != nil && reflect.DeepEqual(s, &jsonschema.Schema{Not: &jsonschema.Schema{}})
}

// shapesOnly reports whether nothing else in a schema decides about a value.
func shapesOnly(s jsonschema.Schema) bool {
	s.Type, s.Types, s.Properties, s.Required, s.AdditionalProperties, s.Items = "", nil, nil, nil, nil, nil
	s.Schema, s.Comment, s.Title, s.Description, s.Default, s.Examples = "", "", "", "", nil, nil
	s.Deprecated, s.ReadOnly, s.WriteOnly = false, false, false
	s.Format, s.ContentEncoding, s.ContentMediaType, s.Extra, s.PropertyOrder = "", "", "", nil, nil
	return reflect.ValueOf(s).IsZero()
}

// A shaper reads a value. It refuses repeated names at any depth.
type shaper struct {
	source bytes.Buffer // jsontext parses a bytes.Buffer in place
	tokens jsontext.Decoder
}

// The pool holds shapers that are ready for a value.
var shapers = sync.Pool{New: func() any {
	r := new(shaper)
	r.reset()
	return r
}}

func (r *shaper) reset() { r.tokens.Reset(&r.source, jsontext.AllowInvalidUTF8(true)) }

// release forgets the value, so that the pool keeps none alive.
func (r *shaper) release() {
	r.source = bytes.Buffer{}
	r.reset()
	shapers.Put(r)
}

// surelyFits reports whether a value is JSON and fits.
func (s *shape) surelyFits(value []byte) bool {
	r := shapers.Get().(*shaper)
	defer r.release()
	r.source = *bytes.NewBuffer(value)
	if !r.fits(s) {
		return false
	}
	_, err := r.tokens.ReadToken()
	return err == io.EOF
}

// fits reads the next value, all of it: the validator takes no number that a
// float64 does not hold, even where the schema says nothing.
func (r *shaper) fits(s *shape) bool {
	if s == nil {
		s = new(shape)
	}
	kind := r.tokens.PeekKind()
	switch {
	case kind == '0':
		return r.number(s)
	case s.types != nil && !slices.Contains(s.types, typeOf(kind)):
		return false
	case kind == '{':
		return r.object(s)
	case kind == '[':
		return r.array(s.items)
	default:
		return r.tokens.SkipValue() == nil
	}
}

func typeOf(kind jsontext.Kind) string {
	switch kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return ""
	}
}

// number takes short decimals. Of what is written otherwise, and of an integer
// with a fraction, it is not sure.
func (r *shaper) number(s *shape) bool {
	value, err := r.tokens.ReadValue()
	if err != nil || len(value) > 18 || bytes.ContainsAny(value, "eE") {
		return false
	}
	return s.types == nil || slices.Contains(s.types, "number") ||
		slices.Contains(s.types, "integer") && bytes.IndexByte(value, '.') < 0
}

// object counts what is needed: no name is read twice.
func (r *shaper) object(s *shape) bool {
	if _, err := r.tokens.ReadToken(); err != nil {
		return false
	}
	needed := len(s.needed)
	for r.tokens.PeekKind() == '"' {
		name, err := r.tokens.ReadValue()
		if err != nil || bytes.IndexByte(name, '\\') >= 0 || !utf8.Valid(name) {
			return false
		}
		name = name[1 : len(name)-1]
		if s.needed[string(name)] {
			needed--
		}
		member, named := s.members[string(name)]
		switch {
		case named && !r.fits(member), !named && (s.closed || !r.fits(s.others)):
			return false
		}
	}
	_, err := r.tokens.ReadToken()
	return err == nil && needed == 0
}

func (r *shaper) array(items *shape) bool {
	if _, err := r.tokens.ReadToken(); err != nil {
		return false
	}
	for r.tokens.PeekKind() != ']' {
		if !r.fits(items) {
			return false
		}
	}
	_, err := r.tokens.ReadToken()
	return err == nil
}
