package schema

import (
	"bytes"
	"io"
	"reflect"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A shape is a schema that has nothing but types, properties and items, as the
// schemas of most tools. It decides for most values, in one pass, that they
// surely fit. For the others it decides nothing. A nil shape is one that every
// value fits.
type shape struct {
	types   types             // 0: any
	members map[string]*shape // by name
	needed  map[string]bool   // the names of required members
	others  *shape            // of members that have no name here
	closed  bool              // no others are allowed
	items   *shape
}

// shapeOf returns the shape of a schema, unless there is more to the schema.
func shapeOf(n *node) (*shape, bool) {
	if n == nil {
		return nil, true
	}
	rest := *n
	rest.types, rest.array, rest.object = 0, nil, nil
	if !reflect.ValueOf(rest).IsZero() {
		return nil, false
	}
	built := &shape{types: n.types}
	if !built.addItems(n.array) || !built.addMembers(n.object) {
		return nil, false
	}
	return built, true
}

func (s *shape) addItems(r *arrayRules) (ok bool) {
	if r == nil {
		return true
	}
	if r.prefix != nil || r.shortest >= 0 || r.longest >= 0 || r.unique || r.contains != nil || r.unevaluated != nil {
		return false
	}
	s.items, ok = shapeOf(r.items)
	return ok
}

func (s *shape) addMembers(r *objectRules) (ok bool) {
	if r == nil {
		return true
	}
	if r.patterns != nil || r.names != nil || r.fewest >= 0 || r.most >= 0 ||
		r.dependentRequired != nil || r.dependentSchemas != nil || r.unevaluated != nil {
		return false
	}
	s.members, s.needed = make(map[string]*shape, len(r.properties)), r.isRequired
	for name, property := range r.properties {
		if s.members[name], ok = shapeOf(property); !ok {
			return false
		}
	}
	if s.closed = r.additional != nil && r.additional.never; s.closed {
		return true
	}
	s.others, ok = shapeOf(r.additional)
	return ok
}

// A shaper reads a value. It refuses repeated names at any depth.
type shaper struct {
	source bytes.Buffer // jsontext parses a bytes.Buffer in place
	tokens jsontext.Decoder
}

// shapers holds shapers that are ready for a value.
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

// fits reads the next value and reports whether it surely fits.
func (r *shaper) fits(s *shape) bool {
	if s == nil {
		s = new(shape)
	}
	kind := r.tokens.PeekKind()
	switch {
	case kind == '0':
		return r.number(s)
	case s.types != 0 && s.types&typeOf(kind) == 0:
		return false
	case kind == '{':
		return r.object(s)
	case kind == '[':
		return r.array(s.items)
	default:
		return r.tokens.SkipValue() == nil
	}
}

func typeOf(kind jsontext.Kind) types {
	switch kind {
	case '{':
		return typeObject
	case '[':
		return typeArray
	case '"':
		return typeString
	case 't', 'f':
		return typeBoolean
	case 'n':
		return typeNull
	default:
		return 0
	}
}

// number takes short decimals. It is not sure of numbers written otherwise, nor
// of an integer with a fraction.
func (r *shaper) number(s *shape) bool {
	value, err := r.tokens.ReadValue()
	if err != nil || len(value) > 18 || bytes.ContainsAny(value, "eE") {
		return false
	}
	return s.types == 0 || s.types&typeNumber != 0 || s.types&typeInteger != 0 && bytes.IndexByte(value, '.') < 0
}

// object counts the required members. No name occurs twice.
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
